"""Traces of runs, as Chrome trace JSON for https://ui.perfetto.dev, and summaries of them.

``PYCOLL_TRACE=DIR``, or ``with pycoll.trace(DIR):`` on all ranks of COMM_WORLD, records each collective, message,
combination, copy and wait, and the phases of the drivers of `pycoll.parallel`; ``with pycoll.trace.phase("forward"):``
adds phases of the program.  ``python -m pycoll.trace DIR`` prints a summary.
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
    """Record the work of this rank in a `with` block, in `directory`; all ranks of COMM_WORLD together.

    Each rank keeps its last `events` events, 40 bytes each, in a file of its own there, which holds them even if the
    rank is killed.  At the end rank 0 puts the last of all ranks into ``trace.json``; after an exception the rank
    that it was raised on does, with what the others have done so far.  Persistent collectives are recorded if they were
    made within it; messages of the program (`pycoll.send`) are not.  OSError if the directory cannot be written to,
    RuntimeError if there is a trace already.
    """
    from .session import begin  # which loads MPI

    session, failed = begin(directory, events), True
    try:
        yield
        failed = False
    finally:
        session.end(failed)


make_callable(__name__, trace)
