"""Binds programs to addresses: messages of mpi4py, and calls without arguments for all steps.

This is how programs run without the compiled core, and on GPU memory.  For buffers there, a launcher binds the steps
that run on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address, array_at
from ..arguments.ops import Operation, bound_division, real_dtype
from ..base.counters import counted
from ..compiler.program import Apply, CopyBytes, Divide, Finish, Program, Region, Start, Step, Wait, is_native
from ..compiler.programs import with_division
from . import native
from .executable import Begun, PythonSteps
from .recording import recorder
from .recording.steps import Tracer

_BYTE = np.dtype(np.uint8)


def lowered(program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Program:
    """The program for the kind of memory of the buffers, with a division at the end if the operation is a mean."""
    if operation and operation.mean and buffers.recv is not None and buffers.count:
        program = with_division(program, buffers.count * buffers.dtype.itemsize)
    return buffers.memory.lowered(program)


def bind(
    comm: MPI.Intracomm,
    program: Program,
    buffers: CheckedBuffers,
    operation: Operation | None,
    scratch: Any,
    tag: int,
) -> PythonSteps:
    """Bind a `lowered` program to buffers."""
    bases, tags = [address(array) for array in (buffers.send, buffers.recv, scratch)], [tag]
    requests: list[Any] = []
    for outgoing, peer, (buffer, start, size), _ in program.messages:
        memory = [MPI.buffer.fromaddress(bases[buffer] + start, size), MPI.BYTE]
        requests.append(Begun(partial(_begin, comm.Isend if outgoing else comm.Irecv, memory, peer, tags)))
    binder = _StepBinder(program, bases, requests, buffers.dtype, operation, comm.size)
    marks: dict[int, Any] = {}
    launcher = None
    if is_native(program):
        step: Any = program.steps[0]
        if step.form != "blocking":
            requests.append(native.request(comm, step, buffers, operation))
        first = requests[0].Start if requests else native.bound(comm, step, buffers, operation)
        calls = [first, *map(binder.call, program.steps[1:])]
    elif launcher := buffers.memory.launcher(bases, buffers.dtype, operation, comm.size):
        marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish}
        calls = []
        for number, step in enumerate(program.steps):
            if type(step) is Finish:
                calls.append(marks[step.step].Wait)
            elif launcher.does(step):
                calls.append(launcher.call(step, marks.get(number)))
            else:
                calls.append(binder.call(step))
    else:
        calls = [*map(binder.call, program.steps)]
    executable = PythonSteps(program, calls, requests, marks, tags, scratch)
    if recorder.current:
        launches = [launcher.does] if launcher else []
        executable.record(Tracer(recorder.current, comm, program, buffers.mean_size(comm.size), executable, *launches))
    return executable


def _begin(begin: Callable[..., MPI.Request], memory: list[Any], peer: int, tags: list[int]) -> MPI.Request:
    """Begin a message with the tag that the executable has now."""
    return begin(memory, peer, tags[0])


class _StepBinder:
    """Makes calls of NumPy, without arguments, for the steps of a program; `bases` are the addresses of its buffers."""

    def __init__(
        self,
        program: Program,
        bases: Sequence[int],
        requests: Sequence[Any],
        dtype: np.dtype,
        operation: Operation | None,
        size: int,
    ) -> None:
        self._messages, self._bases, self._requests = program.messages, bases, requests
        self._dtype, self._operation, self._size = dtype, operation, size
        # NumPy does not check for overlap if an operand and the result are one object: so one array for each region
        self._arrays: dict[tuple[Region, np.dtype], np.ndarray] = {}

    def call(self, step: Step) -> Callable[[], object]:
        """The call that runs a step."""
        match step:
            case Wait(number):
                return self._requests[number].Wait  # type: ignore[no-any-return]
            case Start(number):
                message, start = self._messages[number], self._requests[number].Start
                return counted(start, message.region.size) if message.outgoing else start
            case Apply(left, right, out):
                assert self._operation
                operands = (self._array(region, self._dtype) for region in (left, right, out))
                return self._operation.binder(self._dtype)(*operands)
            case CopyBytes(source, to):
                return partial(np.copyto, self._array(to, _BYTE), self._array(source, _BYTE))
        assert type(step) is Divide, f"{step} is not a step for the host"
        # complex numbers as pairs of real numbers, whose rounding does not depend on their addresses
        mean = self._array(step.region, real_dtype(self._dtype))
        return bound_division(mean, self._size, mean)

    def _array(self, region: Region, dtype: np.dtype) -> np.ndarray:
        key = region, dtype
        if key not in self._arrays:
            self._arrays[key] = array_at(self._bases[region.buffer] + region.start, region.size, dtype)
        return self._arrays[key]
