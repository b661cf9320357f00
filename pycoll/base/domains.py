"""The socket, the NUMA domain and the third-level cache that this process runs on, by the files of Linux in /sys."""

from __future__ import annotations

import os
from functools import cache

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
def domains() -> tuple[int, ...]:
    """Return the number of the domain of each kind; `UNKNOWN` unless the process is bound to the CPUs of one domain.

    ``PYCOLL_PLACE`` replaces what the system says.  Raises ValueError if it is not of the form ``socket=0,numa=1``.
    """
    found = dict(zip(KINDS, by_system(SYSTEM, _cpus()))) | given(os.environ.get(VARIABLE, ""))
    return tuple(found[kind] for kind in KINDS)


def in_words() -> str:
    """Return the domains of this process as text, ``socket 0, numa 1``, or what is wrong."""
    try:
        known = [f"{kind} {number}" for kind, number in zip(KINDS, domains()) if number != UNKNOWN]
    except ValueError as error:
        return str(error)
    return ", ".join(known) or "not bound to a domain of its host"


def _cpus() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has no affinity
        return frozenset()


def by_system(system: str, cpus: frozenset[int]) -> tuple[int, ...]:
    """Return the domains that have all of these CPUs, by the files below a directory."""
    if not cpus:
        return (UNKNOWN,) * len(KINDS)
    cpu = f"{system}/cpu/cpu{min(cpus)}"
    socket, cache = _listed(f"{cpu}/topology/core_siblings_list"), _listed(f"{cpu}/cache/index3/shared_cpu_list")
    nodes = [name for name in _names(f"{system}/node") if cpus <= _listed(f"{system}/node/{name}/cpulist")]
    return (
        min(_listed(f"{cpu}/topology/physical_package_id"), default=UNKNOWN) if cpus <= socket else UNKNOWN,
        int(nodes[0].removeprefix("node")) if nodes else UNKNOWN,
        min(cache) if cpus <= cache else UNKNOWN,
    )


def _names(folder: str) -> list[str]:
    """Return the names of the directories of NUMA domains."""
    try:
        return [name for name in os.listdir(folder) if name.removeprefix("node").isdecimal()]
    except OSError:
        return []


def _listed(path: str) -> set[int]:
    """Return the numbers in a file with a list such as ``0-3,8``; none if there is no such file."""
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError:
        text = ""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first:  # some machines number a socket -1
            return set()
        found.update(range(int(first), int(last or first) + 1))
    return found
