"""Counts messages and bytes that a rank sends: ``with pycoll.traffic() as sent: ...``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import hooks


@dataclass
class Traffic:
    """The messages that a rank sent to other ranks, and the bytes that it staged.

    Attributes
    ----------
    messages : int
        The number of messages.  If a message is cut into segments, each of them counts.
    nbytes : int
        The bytes of these messages.
    staged : int
        The bytes that were copied between GPU memory and host memory.
    """

    messages: int = 0
    nbytes: int = 0
    staged: int = 0


_counting: list[Traffic] = []


@contextlib.contextmanager
def traffic() -> Iterator[Traffic]:
    """Count the messages that this rank sends in a `with` block.

    Collectives of pycoll, `pycoll.send`, `isend` and `sendrecv` are counted.

    Returns
    -------
    context manager of Traffic
        The counts, which increase while the block runs.

    Notes
    -----
    Persistent collectives are counted if they were created in the block.  Programs are bound again at its beginning
    and end, so that calls outside of it have no overhead.

    Around `pycoll.local`, a block counts the messages of all its ranks, which are threads of one process.
    """
    counter = Traffic()
    _counting.append(counter)
    hooks.begin_epoch()
    try:
        yield counter
    finally:
        _counting[:] = [other for other in _counting if other is not counter]
        hooks.begin_epoch()


def counting() -> bool:
    """Whether messages are counted."""
    return bool(_counting)


def count(nbytes: int) -> None:
    """Count a message of `nbytes` bytes."""
    for counter in _counting:
        counter.messages += 1
        counter.nbytes += nbytes


def count_staging(nbytes: int) -> None:
    """Count `nbytes` bytes that are copied between GPU memory and host memory."""
    for counter in _counting:
        counter.staged += nbytes


def counted(call: Callable[[], object], nbytes: int, note: Callable[[int], None] = count) -> Callable[[], object]:
    """Wrap a call that starts a message, or with another `note` a copy, so that it is counted in a `traffic` block."""
    if not _counting:
        return call

    def counting_call() -> None:
        note(nbytes)
        call()

    return counting_call
