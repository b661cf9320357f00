"""Calls in slots: memory through which the compiled core runs collectives inside a host."""

from __future__ import annotations

import zlib
from functools import lru_cache, partial

import numpy as np

from .. import core
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.ops import Operation
from ..compiler.program import EMPTY, READY, SLOTS, Collective, CopyBytes, Post, Program
from ..compiler.program_key import ProgramKey
from ..compiler.storage import ALIGNMENT
from ..schedule.registry import COLLECTIVES
from ..selection.rules import slots_up_to
from .channel import Channel
from .core_runs import divisor_of, loop_of
from .executable import PythonSteps
from .recording import recorder
from .recording.steps import Tracer

MOST_RANKS = SLOTS[-1][0] // ALIGNMENT  # a slot has room for a cache line for each one
MOST_NEIGHBORS = 64  # with more, blocks would be cut into small pieces


def serves(channel: Channel, primitive: str, dtype: np.dtype, operation: Operation | None) -> bool:
    """Whether blocking calls without a named algorithm can run in the slots; the same on all ranks."""
    facts = channel.facts
    usable = channel.slots is not None and facts.host_count == 1 and facts.host_memory
    usable = usable and channel.size <= MOST_RANKS
    known = COLLECTIVES[primitive]
    usable = usable and (_same_lengths(channel, primitive) if known.near else known.lengths_known)
    return usable and (operation is None or (operation.predefined and _combines(operation, dtype)))


def why_not(channel: Channel, primitive: str) -> str:
    """Why a call between neighbors does not run in the slots."""
    facts = channel.facts
    if facts.host_count > 1:
        return f"the ranks are on {facts.host_count} hosts"
    if channel.slots is None or not facts.host_memory or channel.size > MOST_RANKS:
        return "this communicator has none for such calls"
    if COLLECTIVES[primitive].varies:
        return "the blocks may have different lengths"
    if not _same_lengths(channel, primitive):
        return (
            f"they need a grid, or offsets in both directions that connect all ranks, at most {MOST_NEIGHBORS} of them"
        )
    return f"the blocks have more than {slots_up_to(primitive)} bytes"


def _same_lengths(channel: Channel, primitive: str) -> bool:
    """Whether each rank knows the edges of all, and that they have blocks of one length if its own ones have.

    It knows this if edges go both ways and connect all ranks: then the lengths of two neighbors are equal.
    """
    stencil = channel.topology.neighbors.stencil if channel.topology else None
    if stencil is None or COLLECTIVES[primitive].varies or len(stencil.offsets) > MOST_NEIGHBORS:
        return False
    from ..schedule.neighbors import connected, symmetric

    return symmetric(stencil) and connected(stencil)


def _combines(operation: Operation, dtype: np.dtype) -> bool:
    return bool(loop_of(operation, dtype)) and (not operation.mean or divisor_of(dtype, 1) is not None)


@lru_cache(maxsize=512)
def _assembled(key: ProgramKey, dtype: np.dtype, operation: Operation | None) -> core.SlotCode:
    """The program of this rank for the slots."""
    from ..compiler.slots import slot_program

    mean = bool(operation and operation.mean)
    turns, piece, kind = slot_program(key, mean)
    made = {id(turn): core.Steps(list(turn)) for turn in turns}
    ufunc, divisor = loop_of(operation, dtype) if operation else None, divisor_of(dtype, key.size) if mean else None
    call = _number(key, dtype, operation)
    return core.SlotCode([made[id(turn)] for turn in turns], piece, kind, ufunc, dtype, divisor, call)


def _number(key: ProgramKey, dtype: np.dtype, operation: Operation | None) -> int:
    """A number for a call, which is the same on all ranks if their calls match."""
    name = key.algorithm.primitive.name
    blocks = {"allgatherv": key.recvs, "reduce_scatter": key.sends}.get(name)
    sizes = [size for _, size in blocks] if blocks else [key.length * key.itemsize]
    about = [name, key.root, *(sizes if len(set(sizes)) > 1 else sizes[:1])]  # counts may be given on some ranks only
    if operation:
        about += [dtype.str, operation.name, operation.mean]
    return zlib.crc32(repr(about).encode()) >> 2


def assembled(key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> core.SlotCode:
    """The program of this rank for the slots, of a call that `serves` accepts."""
    return _assembled(key._replace(longest=1), buffers.dtype, operation)


def shown(key: ProgramKey) -> Program:
    """The program that stands for a collective in slots; the trace of a rank that waits has its first step."""
    step = Collective(key.algorithm.primitive.name, key.root, "blocking", None, None)
    return Program([Post(READY), step], [], 0, f"{step.primitive}.slots")


def bind(channel: Channel, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> PythonSteps:
    """The executable of a call on these buffers; arrays that are not aligned are copied."""
    send, recv = (
        array if array is None or array.flags.aligned else array.copy() for array in (buffers.send, buffers.recv)
    )
    assert channel.slots
    run = partial(channel.slots, assembled(key, buffers, operation), address(send), address(recv))
    found = PythonSteps(shown(key), [int, run], kept=(send, recv))
    if buffers.recv is not None and recv is not buffers.recv:
        found.add(CopyBytes(EMPTY, EMPTY), partial(buffers.recv.__setitem__, ..., recv))
    if recorder.current:
        nbytes = buffers.mean_size(channel.size)
        found.record(Tracer(recorder.current, channel.comm, found.program, nbytes, found))
    return found
