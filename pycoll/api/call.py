"""Runs a blocking call: by the plan for calls of its kind, or after a check of all arguments."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.check_buffers import check_buffers
from ..base import settings
from ..runtime.attach import attach, channels, is_new
from ..runtime.dispatch import Call, Reader, prepare
from ..runtime.interruptions import interruptions_delayed
from ..runtime.progress import tasks
from ..runtime.slots import NUMBERS

NO_FRONT = core.NoFront()


def run(
    name: str,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    root: int,
    comm: MPI.Intracomm | None,
    algorithm: str | None,
    recvcounts: Any = None,
    read: Reader = check_buffers,
) -> Any:
    """Run a collective function by the plan for calls of its kind; if there is none, check its arguments."""
    comm = MPI.COMM_WORLD if comm is None else comm
    number = NUMBERS[name, recvcounts is not None]
    result = front_of(comm).call(number, algorithm, sendbuf, recvbuf, op, root, recvcounts)
    if result is not core.MISSED:
        return result
    return run_carefully(Call(name, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts, read))


def front_of(comm: Any) -> core.Front | core.NoFront:
    """The plans of a communicator; none of a new or closed one, or if this is not a communicator."""
    try:
        return channels[comm.handle].front
    except (AttributeError, KeyError, TypeError):
        return NO_FRONT


def run_carefully(call: Call) -> Any:
    """Check the arguments and run; keep a plan for the next calls of this kind."""
    if is_new(call.comm):
        with interruptions_delayed():  # an interruption must not separate this from the collective
            attach(call.comm)
            return run_carefully(call)
    prepared = prepare(call, attach(call.comm))
    prepared.remember(call)
    # in slots, a rank that waits lets collectives in flight progress
    in_slots = prepared.slots and prepared.simple and not prepared.sharing
    if not in_slots and (settings.TIMEOUT or (tasks and not prepared.native)):
        prepared.task(prepared.parts).run()
    else:
        with interruptions_delayed():  # its parts belong together
            prepared.run()
    return prepared.buffers.result
