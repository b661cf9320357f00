"""The slots of a communicator: memory through which the compiled core runs its collectives inside a host."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from .. import core
from ..arguments.arrays import IN_PLACE
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.datatypes import predefined
from ..arguments.memory import address
from ..arguments.ops import Operation
from ..compiler.blocks import ProgramKey
from ..compiler.program import EMPTY, READY, Collective, CopyBytes, Post, Program
from ..schedule.registry import PRIMITIVES
from . import native
from .channel import Channel
from .executable import PythonSteps
from .machine import divisor_of, loop_of
from .progress import MachineTask, asleep, background, tasks
from .recording import recorder
from .recording.steps import Tracer

METHODS = [native.function_name(name, False) for name in PRIMITIVES] + ["Reduce_scatter"]
"""The methods of a communicator, by the numbers of the front: those of the primitives, then that with counts."""
NUMBERS = {(name, counts): number for number, name in enumerate(PRIMITIVES) for counts in (False, True)}
"""The numbers of the primitives for the front, without and with `recvcounts`."""
NUMBERS["reduce_scatter", True] = len(PRIMITIVES)


def new_front(channel: Channel) -> core.Front | core.NoFront:
    """The front of a communicator, without plans."""
    comm = channel.comm
    if core.problem:
        return core.NoFront()
    core.set_constants(IN_PLACE, predefined())
    uses = [core.uses_of(PRIMITIVES[name]) for name in (*PRIMITIVES, "reduce_scatter")]
    natives = [getattr(comm, name) for name in (*METHODS, *(f"I{name.lower()}" for name in METHODS))]
    return core.Front(
        channel.slots, comm.rank, comm.size, tasks, background, asleep, uses, natives, MachineTask, channel.tags
    )


def serves(channel: Channel, primitive: str, dtype: np.dtype, operation: Operation | None) -> bool:
    """Whether blocking calls without a named algorithm can run in the slots; the same on all ranks."""
    facts = channel.facts
    usable = channel.slots is not None and facts.host_count == 1 and facts.host_memory
    usable = usable and PRIMITIVES[primitive].lengths_known
    return usable and (operation is None or (operation.predefined and _combines(operation, dtype)))


def _combines(operation: Operation, dtype: np.dtype) -> bool:
    return bool(loop_of(operation, dtype)) and (not operation.mean or divisor_of(dtype, 1) is not None)


@lru_cache(maxsize=512)
def _assembled(key: ProgramKey, dtype: np.dtype, operation: Operation | None) -> core.Program:
    """The program of this rank for the machine."""
    from ..compiler.slots import slot_program

    mean = bool(operation and operation.mean)
    turns, piece, kind = slot_program(key, mean)
    made = {id(turn): core.Steps(list(turn)) for turn in turns}
    ufunc, divisor = loop_of(operation, dtype) if operation else None, divisor_of(dtype, key.size) if mean else None
    return core.Program([made[id(turn)] for turn in turns], piece, kind, ufunc, dtype, divisor)


def assembled(key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> core.Program:
    """The program of this rank for the machine, of a call that `serves` accepts."""
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
