"""Requests of persistent collectives that a program has dropped without freeing them.

The garbage collector may run anywhere: in a thread that must not call MPI, or after MPI_Finalize.  So it only notes the
requests, and a later call of pycoll gives them back to MPI.
"""

from __future__ import annotations

import contextlib
import weakref

from mpi4py import MPI

_dropped: list[MPI.Prequest] = []


def collect_later(owner: object, requests: list[MPI.Prequest]) -> weakref.finalize[..., object]:
    """Have these requests freed some time after their owner is collected.

    They must be inactive then: whoever starts them must keep a reference to the owner until they are complete.
    """
    finalizer = weakref.finalize(owner, _dropped.extend, requests)
    finalizer.atexit = False
    return finalizer


def free_dropped() -> None:
    """Free the requests whose owners were collected."""
    with contextlib.suppress(IndexError):  # another thread may have taken the last one
        while _dropped:
            _dropped.pop().Free()
