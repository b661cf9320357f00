"""Aborts the job when one rank fails, because the other ranks would wait for it forever."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from mpi4py import MPI

from ..base.command_line import PAUSE
from ..runtime.attach import channels
from ..runtime.failures import TOLERANT

last_acts: list[Callable[[], object]] = []  # called before the job ends


def abort_on_exception(comm: MPI.Comm | None = None) -> None:
    """Make an uncaught exception in any thread print its traceback and abort the job.

    Call this once, at the start of a program.

    Parameters
    ----------
    comm : MPI.Comm, optional
        The communicator whose ranks are aborted; COMM_WORLD by default.

    Notes
    -----
    `sys.exit` is not a failure: it ends its thread or process as usual.  To abort the job in this case as well, run the
    program with ``python -m mpi4py``.
    """
    world = MPI.COMM_WORLD if comm is None else comm

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        abort(error, world)

    def thread_hook(failed: threading.ExceptHookArgs) -> None:
        if not issubclass(failed.exc_type, SystemExit):
            abort(failed.exc_value or failed.exc_type(), world)

    sys.excepthook, threading.excepthook = hook, thread_hook


def abort(error: BaseException, comm: MPI.Comm | None = None) -> None:
    """Print the traceback of the error and the rank, and end the job of `comm` (COMM_WORLD by default).

    Before MPI is initialized and after it is finalized, only print the traceback: no rank waits for this one.
    """
    if not MPI.Is_initialized() or MPI.Is_finalized():
        traceback.print_exception(error)
        return
    end_job("".join(traceback.format_exception(error)), MPI.COMM_WORLD if comm is None else comm)


def end_job(message: str, comm: MPI.Comm) -> None:
    """Print a message on stderr, and end all ranks."""
    sys.stdout.flush()
    sys.stderr.write(f"\npycoll: rank {comm.rank} of {comm.size} failed and ends the job:\n{message}\n")
    sys.stderr.flush()
    start = time.monotonic()
    for act in list(last_acts):
        with contextlib.suppress(Exception):  # the job must end in any case
            act()
    time.sleep(max(0.0, PAUSE - (time.monotonic() - start)))
    if TOLERANT:  # then, MPI_Abort of Open MPI ends this process only; the others leave their calls with an error
        with contextlib.suppress(MPI.Exception):
            comm.Revoke()
            for channel in list(channels.values()):
                channel.revoke()
    comm.Abort(1)
