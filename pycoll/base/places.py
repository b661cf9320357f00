"""The socket, the NUMA domain and the third-level cache that this process runs on, by the files of Linux in /sys."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("socket", "numa", "l3")
UNKNOWN = -1  # the process may run in several domains of this kind, or the system does not say where it runs
VARIABLE = "PYCOLL_PLACE"
SYSTEM = "/sys/devices/system"


def given(text: str) -> dict[str, int]:
    """Return the domains in a text such as ``socket=0,numa=1``; raise ValueError if it is not of this form."""
    found = {}
    for part in filter(None, text.split(",")):
        kind, _, number = part.partition("=")
        if kind not in KINDS or not (number.isdecimal() and len(number) < 10):
            example = ",".join(f"{kind}=0" for kind in KINDS)
            raise ValueError(f"environment variable {VARIABLE}={text!r} is not of the form {example}")
        found[kind] = int(number)
    return found


@cache
def place() -> tuple[int, ...]:
    """Return the number of the domain of each kind; `UNKNOWN` unless the process is bound to the CPUs of one domain.

    ``PYCOLL_PLACE`` replaces what the system says.  Raises ValueError if it is not of the form ``socket=0,numa=1``.
    """
    from pathlib import Path  # few programs need it otherwise

    found = dict(zip(KINDS, by_system(Path(SYSTEM), _cpus()))) | given(os.environ.get(VARIABLE, ""))
    return tuple(found[kind] for kind in KINDS)


def in_words(numbers: tuple[int, ...]) -> str:
    """Return the domains as text: ``socket 0, numa 1``."""
    known = [f"{kind} {number}" for kind, number in zip(KINDS, numbers) if number != UNKNOWN]
    return ", ".join(known) or "not bound to a domain of its host"


def _cpus() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has no affinity
        return frozenset()


def by_system(system: Path, cpus: frozenset[int]) -> tuple[int, ...]:
    """Return the domains of these CPUs, by the files below a directory."""
    sockets = {_number(system / f"cpu/cpu{cpu}/topology/physical_package_id") for cpu in cpus}
    caches = {_first(system / f"cpu/cpu{cpu}/cache/index3/shared_cpu_list") for cpu in cpus}
    nodes = {
        int(path.parent.name.removeprefix("node"))
        for path in system.glob("node/node[0-9]*/cpulist")
        if cpus & _listed(_text(path))
    }
    return tuple(next(iter(found)) if len(found) == 1 else UNKNOWN for found in (sockets, nodes, caches))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else UNKNOWN


def _listed(text: str) -> set[int]:
    """Return the CPUs of a list such as ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _first(path: Path) -> int:
    """Return the first CPU of a list, as the number of a cache; `UNKNOWN` if there is none."""
    return min(_listed(_text(path)), default=UNKNOWN)
