"""Runs a blocking call: by the plan for calls of its kind, or after a check of all arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.mpi_arguments import read_varying
from ..arguments.signature import NONE, SAME, Key, call_kind
from ..base import settings
from ..runtime.attach import attach, channels, is_new
from ..runtime.dispatch import Call, prepare
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
    in_slots = (
        prepared.slots and prepared.simple and not prepared.sharing
    )  # where a rank that waits lets collectives in flight progress
    if not in_slots and (settings.TIMEOUT or (tasks and not prepared.native)):
        prepared.task(prepared.parts()).run()
    else:
        if kind and prepared.simple and channel.plan(kind) is None and (plan := prepared.plan(call, send, recv)):
            channel.remember(kind, plan)
        # its parts belong together; if it is native, MPI blocks while collectives are in flight
        with interruptions_delayed(), contextlib.nullcontext() if in_slots else advanced_elsewhere():
            prepared.run()
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
        if plan.run(send, recv):
            return recvbuf if plan.answer is None else plan.answer(recv)
        recvbuf = None if plan.allocates else recvbuf
    return carefully(Call(name, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts), kind, send, recv)
