"""The plans that the front of a communicator keeps, so that later calls of the same kind are not checked again."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from .. import core
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from ..arguments.mpi_arguments import read
from ..arguments.ops import CONSTANTS
from ..base import hooks, settings
from ..compiler.program import BLOCKING
from ..selection.rules import PACKED
from . import slots
from .calls import Call, Prepared
from .channel import KEPT_SCRATCH
from .executable import Executable
from .failures import TOLERANT
from .front import NUMBERS
from .recording import recorder

Runner: TypeAlias = "core.SlotCode | Executable | core.MpiCall | str"


def remember(prepared: Prepared, call: Call) -> None:
    """Let the front run later calls like this one; not while tracing."""
    channel, buffers = prepared.channel, prepared.buffers
    ready = prepared.simple or (prepared.native and prepared.one_part)  # MPI itself packs datatypes
    if channel.epoch != hooks.epoch or recorder.current or (settings.TIMEOUT and not prepared.slots) or not ready:
        return
    method, allocates = call.read is read, None
    if not method and buffers.result is not call.recvbuf:
        if call.recvbuf is None and buffers.result is buffers.recv:
            allocates = buffers.recv
        elif not (type(call.recvbuf) is list and buffers.result is call.recvbuf[0]):
            return
    number = NUMBERS[call.primitive, call.recvcounts is not None]
    kind = (call.form == "nonblocking") + 2 * (not method)
    given = call.algorithm, call.sendbuf, call.recvbuf, call.op, call.root, call.recvcounts
    addresses = (address(buffers.send), address(buffers.recv)) if prepared.simple else (0, 0)
    channel.front.remember(number, kind, *given, *addresses, prepared, partial(runner, prepared, call), allocates)


def runner(prepared: Prepared, call: Call, method: bool) -> Runner | None:
    """What runs calls like this one on other buffers; None if each call is to be checked.

    `call` has the arguments as the caller passed them; MPI takes these of a `method`.

    Returns
    -------
    core.SlotCode
        For calls in slots.
    core.Run
        For calls with messages, or on registered buffers.
    "core"
        For collectives in flight that the core runs: each one needs a run of its own.
    core.MpiCall
        For collectives of MPI on two addresses.
    "native"
        For collectives of MPI on the arguments of the caller, for example with datatypes that MPI has to pack.
    """
    if prepared.native:
        return None if TOLERANT else _native_runner(prepared, call, method)  # an error may mean that ranks have failed
    if not prepared.simple or prepared.buffers.memory is not HOST:
        return None
    if prepared.bind.form == "nonblocking":
        predefined = prepared.operation is None or prepared.operation.predefined  # others may be freed meanwhile
        return "core" if prepared.is_one_run and predefined else None
    if prepared.channel.mailboxes is None:
        return None
    if prepared.slots:
        return slots.assembled(prepared.key, prepared.buffers, prepared.operation)
    return prepared.anywhere.bound(BLOCKING) if prepared.lowered.scratch <= KEPT_SCRATCH else None


def _native_runner(prepared: Prepared, call: Call, method: bool) -> Runner | None:
    found: Runner | None = None
    if prepared.buffers.memory is HOST and call.form == "blocking":
        from .native_call import native_call, native_call_w  # programs on one host rarely need it

        comm = prepared.channel.comm
        if call.primitive in PACKED:
            found = native_call_w(comm, call.primitive, call.sendbuf, call.recvbuf)
        elif prepared.simple:
            found = native_call(comm, prepared.program().steps[0], prepared.buffers, prepared.operation)
    if not found and method and (prepared.operation is None or id(call.op) in CONSTANTS):  # MPI knows no names
        return "native"
    return found
