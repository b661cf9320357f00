"""Counts what a rank sends: ``with pycoll.traffic() as sent: ...``, then `sent.messages` and `sent.nbytes`.

`sent.staged` are the bytes that were copied between a GPU and the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import hooks


@dataclass
class Traffic:
    """Messages to other ranks, and their bytes; what was copied on the way."""

    messages: int = 0
    nbytes: int = 0
    staged: int = 0  # bytes copied between GPU memory and host memory


_counting: list[Traffic] = []


@contextlib.contextmanager
def traffic() -> Iterator[Traffic]:
    """Count what this rank sends to others by collectives of pycoll, and by `pycoll.send`, `isend` and `sendrecv`.

    Persistent collectives are counted if they were made within it.  Programs are bound anew at its begin and end, so
    that there is no cost where nothing is counted.
    """
    counter = Traffic()
    _counting.append(counter)
    hooks.begin_epoch()
    try:
        yield counter
    finally:
        _counting[:] = [other for other in _counting if other is not counter]
        hooks.begin_epoch()


def count(nbytes: int) -> None:
    """A message of so many bytes is sent."""
    for counter in _counting:
        counter.messages += 1
        counter.nbytes += nbytes


def count_staging(nbytes: int) -> None:
    """So many bytes are copied between GPU memory and host memory."""
    for counter in _counting:
        counter.staged += nbytes


def counted(call: Callable[[], object], nbytes: int, note: Callable[[int], None] = count) -> Callable[[], object]:
    """A call that starts a message, or a copy that `note` is for, such that it is counted if anything is."""
    if not _counting:
        return call

    def counting_call() -> None:
        note(nbytes)
        call()

    return counting_call
