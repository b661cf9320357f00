"""Traces: Chrome trace JSON for https://ui.perfetto.dev, summaries, and drawings.

``PYCOLL_TRACE=DIR``, or ``with pycoll.trace(DIR):`` on all ranks of COMM_WORLD, records each collective, message,
combination, copy and wait, and the phases of the drivers in `pycoll.parallel`.  Programs add phases of their own with
``with pycoll.trace.phase("forward"):``.  ``python -m pycoll.trace DIR`` prints a summary.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..base.callable_module import make_callable
from ..base.settings import EVENTS
from ..runtime.recording.phases import Passes, phase, since_last, under_way
from ..runtime.recording.recorder import now

__all__ = ["Passes", "now", "phase", "since_last", "trace", "under_way"]


@contextlib.contextmanager
def trace(directory: str | os.PathLike[str], events: int = EVENTS) -> Iterator[None]:
    """Record what the ranks do in a `with` block.  Collective over COMM_WORLD.

    Parameters
    ----------
    directory
        Where to write the trace.  It is created if it does not exist.
    events
        The number of events to keep on each rank, 40 bytes each.  The oldest ones are overwritten.

    Raises
    ------
    OSError
        If the directory cannot be written to at the start.
    RuntimeError
        If a trace is already being recorded.

    Notes
    -----
    Each rank writes its events to a file of its own, which survives if the rank is killed.  At the end rank 0 writes
    the last events of all ranks to ``trace.json``.  After an exception, the rank that raised it writes that file, with
    what the other ranks have recorded so far.  An error at the end is printed, and not raised.  Persistent collectives
    are recorded if they were created inside the block.  Messages of the program (`pycoll.send`) are not recorded.
    """
    from .session import begin  # which loads MPI

    session, failed = begin(directory, events), True
    try:
        yield
        failed = False
    finally:
        session.end(failed)


make_callable(__name__, trace)
