"""Runs a blocking call: by the plan for calls of its kind, or after a check of all arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.mpi_arguments import read_varying
from ..arguments.signature import NONE, SAME, Key, call_kind
from ..base import settings
from ..base.errors import MismatchError
from ..runtime.attach import attach, channels, is_new
from ..runtime.channel import Channel
from ..runtime.dispatch import Call, Prepared, prepare
from ..runtime.executable import Runs, run_in_turn
from ..runtime.interruptions import interruptions_delayed
from ..runtime.progress import advanced_elsewhere, tasks

ndarray = np.ndarray
Careful = Callable[[Call, Key | None, Any, Any], Any]


def run_carefully(call: Call, kind: Key | None, send: Any, recv: Any) -> Any:
    """Check the arguments and run; keep a plan for the next calls of this kind."""
    if is_new(call.comm):
        with interruptions_delayed():  # an interruption must not separate this from the collective
            attach(call.comm)
            return run_carefully(call, kind, send, recv)
    channel = attach(call.comm)
    prepared = prepare(call, channel)
    prepared.remember(call)
    in_slots = prepared.slots and prepared.simple  # where a rank that waits lets collectives in flight progress
    if not in_slots and (settings.TIMEOUT or (tasks and not prepared.native)):
        prepared.task(prepared.parts()).run()
    elif in_slots or (prepared.simple and not tasks):
        executable = None if prepared.sharing else prepared.executable()
        if kind and channel.plan(kind) is None and (plan := prepared.plan(call, send, recv, executable)):
            channel.remember(kind, plan)
        if executable:
            _run_parts(prepared, [executable])
        else:
            with interruptions_delayed():  # programs are bound between two synchronizations
                _run_parts(prepared, prepared.parts())
    else:
        # its parts belong together; collectives are in flight only if this one is native, and MPI blocks
        with interruptions_delayed(), advanced_elsewhere():
            _run_parts(prepared, prepared.parts())
    return prepared.buffers.result


def run_varying(call: Call, kind: Key | None, send: Any, recv: Any) -> Any:
    """As `run_carefully`, for buffers with counts."""
    return run_carefully(call._replace(read=read_varying), kind, send, recv)


def run(
    name: str,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    root: int,
    comm: MPI.Intracomm | None,
    algorithm: str | None,
    recvcounts: Any = None,
    carefully: Careful = run_carefully,
) -> Any:
    """Run a collective by the plan for calls of its kind; if there is none, call `carefully`."""
    comm = MPI.COMM_WORLD if comm is None else comm
    send, recv = sendbuf, recvbuf
    if type(send) is not ndarray:
        send = NONE if send is None else SAME if send is IN_PLACE else None
    if send is not None and type(recv) is ndarray and recvcounts is None:
        kind: Key | None = (name, algorithm, root, id(op), send.dtype, send.shape, recv.dtype, recv.shape)
    else:
        lists = carefully is not run_carefully
        kind, send, recv = call_kind(name, sendbuf, recvbuf, op, root, algorithm, recvcounts, lists)
    try:
        plan = channels[comm.handle].plans.get(kind)
    except (AttributeError, KeyError, TypeError):  # a new or closed communicator, arguments of wrong types
        plan = None
    if plan is not None and not tasks:
        if plan.allocates:
            recv = recvbuf = np.empty(*plan.allocates)
        try:
            if plan.run(send, recv):
                return recvbuf if plan.answer is None else plan.answer(recv)
        except BaseException as error:
            if plan.running and plan.running.failed:
                _abandon(channels[comm.handle], f"{name} on rank {comm.rank}", error, plan, sendbuf, recvbuf)
            raise
        recvbuf = None if plan.allocates else recvbuf
    return carefully(Call(name, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts), kind, send, recv)


def _run_parts(prepared: Prepared, parts: Iterable[Runs]) -> None:
    def broken(error: BaseException, part: Runs) -> None:
        if not isinstance(error, MismatchError):
            _abandon(prepared.channel, prepared.name, error, part, prepared)

    run_in_turn(parts, broken)


def _abandon(channel: Channel, name: str, error: BaseException, *kept: object) -> None:
    """Make the communicator unusable, because messages of this rank may still be pending; raise RankFailed if it is."""
    failure = channel.interrupted(name, error, *kept)
    if failure is not error:
        raise failure from error
