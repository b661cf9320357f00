"""The slots of a communicator: memory through which the compiled core runs its collectives inside a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import core
from ..arguments.arrays import IN_PLACE
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.ops import Operation
from ..arguments.signature import DATATYPES
from ..compiler.blocks import ProgramKey
from ..compiler.program import BLOCKING, EMPTY, READY, Collective, CopyBytes, Post, Program, Step
from ..schedule.registry import PRIMITIVES
from . import native
from .executable import PythonSteps
from .machine import divisor_of, loop_of
from .progress import background, tasks
from .recording import recorder
from .recording.steps import Tracer

if TYPE_CHECKING:
    from .channel import Channel

METHODS = [native.function_name(name, False) for name in PRIMITIVES] + ["Reduce_scatter"]
"""The methods of a communicator, by the numbers of the front: those of the primitives, then that with counts."""


class NoFront:
    """Stands for the front where nothing was compiled: each call takes the careful path."""

    def run(self, *arguments: Any) -> bool:
        """Return False: there is no plan."""
        return False

    def start(self, *arguments: Any) -> None:
        """Return None: there is no plan."""

    def remember(self, *arguments: Any) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


def new_front(channel: Channel) -> core.Front | NoFront:
    """The front of a communicator, without plans."""
    comm = channel.comm
    if core.problem:
        return NoFront()
    core.set_constants(IN_PLACE, DATATYPES)
    uses = [core.uses_of(PRIMITIVES[name]) for name in (*PRIMITIVES, "reduce_scatter")]
    natives = [getattr(comm, name) for name in (*METHODS, *(f"I{name.lower()}" for name in METHODS))]
    return core.Front(channel.slots, comm.rank, comm.size, (tasks, background), uses, natives)


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


def bind(channel: Channel, program: core.Program, buffers: CheckedBuffers, key: ProgramKey) -> PythonSteps:
    """The executable that runs a program on these buffers; arrays that are not aligned are copied."""
    assert channel.slots
    send, recv = (
        array if array is None or array.flags.aligned else array.copy() for array in (buffers.send, buffers.recv)
    )
    steps: list[Step] = shown(key).steps
    calls: list[Callable[[], object]] = [int, partial(channel.slots, program, address(send), address(recv))]
    if buffers.recv is not None and recv is not buffers.recv:
        steps = [*steps, CopyBytes(EMPTY, EMPTY)]
        calls.append(partial(buffers.recv.__setitem__, ..., recv))
    executable = PythonSteps(replace(shown(key), steps=steps), calls, kept=(send, recv))
    if recorder.current:
        nbytes = buffers.mean_size(channel.size)
        executable.record(Tracer(recorder.current, channel.comm, executable.program, nbytes, [BLOCKING]))
    return executable
