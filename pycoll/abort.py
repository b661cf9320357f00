"""One rank's failure ends the job: without this, the other ranks wait for it forever."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

from mpi4py import MPI


def abort_on_exception(comm: MPI.Comm | None = None) -> None:
    """From now on an uncaught exception, in any thread, prints its traceback and aborts the job.

    The job is all ranks of `comm`, COMM_WORLD by default.  Call it once, at the start of a program.
    `sys.exit` is no failure and passes as usual: to end the job by it too, run the program by
    ``python -m mpi4py``.
    """
    world = MPI.COMM_WORLD if comm is None else comm

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        abort(error, world)

    sys.excepthook = hook
    threading.excepthook = lambda failed: abort(failed.exc_value or SystemExit(), world)


def abort(error: BaseException, comm: MPI.Comm | None = None) -> None:
    """Print the error's traceback with this rank's number, and abort the job."""
    world = MPI.COMM_WORLD if comm is None else comm
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(f"pycoll: rank {world.rank} of {world.size} failed and ends the job:\n{text}")
    sys.stdout.flush()
    sys.stderr.flush()
    world.Abort(1)
