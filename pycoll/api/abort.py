"""Aborts the job when one rank fails, because the other ranks would wait for it forever."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from mpi4py import MPI

from ..base.command_line import PAUSE
from ..runtime.attach import channels
from ..runtime.failures import TOLERANT

if TYPE_CHECKING:
    from .same_errors import SameError

last_acts: list[Callable[[], object]] = []  # called before the job ends


def abort_on_exception(comm: MPI.Comm | None = None) -> None:
    """Make an uncaught exception in any thread print its traceback and abort the job.

    Call this once, at the start of a program.  The traceback has no frames of pycoll, unless ``PYCOLL_TRACEBACK=full``
    is set.  An exception that several ranks raise is printed once, if they have called pycoll before.

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
    """Print the traceback of the error and its ranks, and end the job of `comm` (COMM_WORLD by default).

    Before MPI is initialized and after it is finalized, only print the traceback: no rank waits for this one.
    """
    from ..base.tracebacks import formatted  # imported only by ranks that fail

    if not MPI.Is_initialized() or MPI.Is_finalized():
        print(formatted(error), file=sys.stderr)
        return
    end_job(formatted(error), MPI.COMM_WORLD if comm is None else comm)


def end_job(message: str, comm: MPI.Comm) -> None:
    """Print a message on stderr, once for all ranks that end the job with the same message, and end all ranks."""
    from .same_errors import LATEST

    start = time.monotonic()
    sys.stdout.flush()
    same = _same_error(comm, message)
    if same and same.is_printed():
        if same.late:
            another = min(same.ranks - {comm.rank})
            sys.stderr.write(f"pycoll: rank {comm.rank} of {comm.size} failed with the same error as rank {another}\n")
            sys.stderr.flush()
    else:
        ranks = sorted(same.ranks) if same else [comm.rank]
        sys.stderr.write(f"\npycoll: {_who(ranks, comm.size)} the job:\n{message}\n")
        sys.stderr.flush()
        if same:
            same.printed()
    for act in list(last_acts):
        with contextlib.suppress(Exception):  # the job must end in any case
            act()
    time.sleep(max(0.0, LATEST + PAUSE - (time.monotonic() - start)))
    if TOLERANT:  # then, MPI_Abort of Open MPI ends this process only; the others leave their calls with an error
        with contextlib.suppress(MPI.Exception):
            comm.Revoke()
            for channel in list(channels.values()):
                channel.revoke()
    comm.Abort(1)


def _same_error(comm: MPI.Comm, message: str) -> SameError | None:
    """What ranks that fail exchange; None if they cannot, or there is only one."""
    if comm.size == 1 or not (MPI.Query_thread() == MPI.THREAD_MULTIPLE or MPI.Is_thread_main()):
        return None
    from .same_errors import SameError

    channel = channels.get(comm.handle)
    return SameError(channel.comm, message, channel.last_tag) if channel else None


def _who(ranks: list[int], size: int) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} of {size} failed and ends"
    together = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
    named = f"{ranks[0]} to {ranks[-1]}" if together else ", ".join(map(str, ranks))
    return f"ranks {named} of {size} failed and end"
