"""Settings, from environment variables or `configure`; they must be the same on all ranks.

| variable | meaning |
|---|---|
| ``PYCOLL_CUDA_AWARE`` | 0 or 1: whether MPI may be given addresses on a GPU (see `pycoll.cuda.support`) |
| ``PYCOLL_SEGMENT`` | the longest message in bytes (4 MiB; 56 KiB between hosts) |
| ``PYCOLL_PIPELINE`` | the bytes of the segments that pipelined algorithms cut vectors into (128 KiB, 16 KiB) |
| ``PYCOLL_ALLREDUCE``, ... | a primitive's algorithm, where a call and its communicator name none |
| ``PYCOLL_TUNING`` | a file that ``python -m pycoll.tune`` wrote (see `pycoll.tuning`), or ``off`` |
| ``PYCOLL_CHECK`` | 1: each call first compares its arguments across ranks |
| ``PYCOLL_TIMEOUT`` | seconds that a collective may take |
| ``PYCOLL_TRACE`` | a folder: a trace of the run is written there (see `pycoll.trace`) |
| ``PYCOLL_TRACE_EVENTS`` | how many events each rank keeps in it (524288: 20 MiB) |
| ``PYCOLL_LOG`` | ``algorithms``: tell which algorithm each new kind of call gets, and why |
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache

from .schedule import PRIMITIVES, find
from .trace.recorder import EVENTS


def _number_from(variable: str, default: int, of: str = "bytes") -> int:
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"environment variable {variable}={text!r} is not a positive number of {of}")
    return int(text)


def _seconds_from(variable: str) -> float | None:
    text = os.environ.get(variable, "")
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = 0.0
    if seconds is not None and not seconds > 0:
        raise ValueError(f"environment variable {variable}={text!r} is not a positive number of seconds")
    return seconds


def _switch_from(variable: str) -> bool:
    text = os.environ.get(variable, "0")
    if text not in ("", "0", "1"):
        raise ValueError(f"environment variable {variable}={text!r} is neither 0 nor 1")
    return text == "1"


DEFAULT_SEGMENT, DEFAULT_PIPELINE = 4 << 20, 128 << 10
SEGMENT = _number_from("PYCOLL_SEGMENT", DEFAULT_SEGMENT)
PIPELINE = _number_from("PYCOLL_PIPELINE", DEFAULT_PIPELINE)
NETWORK_SEGMENT = 56 << 10  # the defaults between hosts: above 64 KiB Open MPI's TCP messages wait for their receivers
NETWORK_PIPELINE = 16 << 10
CHECK = _switch_from("PYCOLL_CHECK")
TIMEOUT = _seconds_from("PYCOLL_TIMEOUT")
TRACE = os.environ.get("PYCOLL_TRACE")
TRACE_EVENTS = _number_from("PYCOLL_TRACE_EVENTS", EVENTS, "events")


def longest(several_hosts: bool, tuned: int | None = None) -> int:
    """The longest message in bytes; `tuned` is what was measured to be the best."""
    if SEGMENT != DEFAULT_SEGMENT:
        return SEGMENT
    return tuned or (NETWORK_SEGMENT if several_hosts else SEGMENT)


def pipeline(several_hosts: bool, tuned: int | None = None) -> int:
    """The bytes of a pipelined algorithm's segments; `tuned` is what was measured to be the best."""
    if PIPELINE != DEFAULT_PIPELINE:
        return PIPELINE
    return tuned or (NETWORK_PIPELINE if several_hosts else PIPELINE)


def segments(nbytes: int, several_hosts: bool = False, tuned: int | None = None) -> int:
    """Into how many segments a pipelined algorithm cuts a vector."""
    return max(1, -(-nbytes // pipeline(several_hosts, tuned)))


logger = logging.getLogger("pycoll.algorithms")


def start_logging() -> None:
    """As `PYCOLL_LOG` asks for."""
    text = os.environ.get("PYCOLL_LOG", "")
    if text not in ("", "algorithms"):
        raise ValueError(f"environment variable PYCOLL_LOG={text!r} is not 'algorithms'")
    if text:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


start_logging()


def primitive_called(name: str) -> str:
    """The primitive that a function or a communicator's method of this name runs; KeyError names all."""
    primitive = {"reduce_scatter_block": "reduce_scatter"}.get(name.lower(), name.lower())
    if primitive not in PRIMITIVES:
        raise KeyError(f"{name!r} is not one of: {', '.join(PRIMITIVES)}")
    return primitive


class Choices(MutableMapping[str, str]):
    """Which algorithm runs where a call names none: ``choices["Allreduce"] = "ring"``.

    Keys are names of primitives, in small letters or as MPI writes them.
    """

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._names: dict[str, str] = {}
        self._changed = changed

    def of(self, primitive: str) -> str | None:
        """The choice for a primitive, by its name in small letters; None if there is none."""
        return self._names.get(primitive)

    def __getitem__(self, primitive: str) -> str:
        return self._names[primitive_called(primitive)]

    def __setitem__(self, primitive: str, algorithm: str) -> None:
        primitive = primitive_called(primitive)
        find(primitive, algorithm)
        self._names[primitive] = algorithm
        self._changed()

    def __delitem__(self, primitive: str) -> None:
        del self._names[primitive_called(primitive)]
        self._changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Choices({self._names})"


@cache
def algorithm_from_environment(primitive: str) -> str | None:
    """What ``PYCOLL_<PRIMITIVE>`` asks for; ValueError if there is no such algorithm."""
    variable = f"PYCOLL_{primitive.upper()}"
    name = os.environ.get(variable)
    if name:
        try:
            find(primitive, name)
        except ValueError as error:
            raise ValueError(f"environment variable {variable}={name!r}: {error}") from None
    return name or None
