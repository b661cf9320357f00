"""Requests of persistent collectives that a program has dropped without freeing them.

The garbage collector may run in a thread that must not call MPI, or after MPI_Finalize.  Therefore, it only records the
requests, and a later call of pycoll frees them.
"""

from __future__ import annotations

import contextlib
import weakref

from .executable import Executable

_dropped: list[Executable] = []


def collect_later(owner: object, executable: Executable) -> weakref.finalize[..., object]:
    """Free the requests of an executable some time after its owner is collected.

    They must be inactive then: the code that starts them must keep a reference to the owner until they are complete.
    """
    finalizer = weakref.finalize(owner, _dropped.append, executable)
    finalizer.atexit = False
    return finalizer


def free_dropped() -> None:
    """Free the requests whose owners were collected."""
    with contextlib.suppress(IndexError):  # another thread may have taken the last one
        while _dropped:
            _dropped.pop().free()
