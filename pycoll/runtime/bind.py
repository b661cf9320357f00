"""Binds programs to addresses: messages of mpi4py, and calls without arguments for all steps.

This is how programs run without the compiled core, and on GPU memory.  For buffers there, a launcher binds the steps
that run on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.ops import Operation
from ..compiler.program import Finish, Program, is_native
from ..compiler.programs import with_division
from . import native
from .executable import Begun, PythonSteps
from .recording import recorder
from .recording.steps import Tracer
from .step_calls import StepBinder


def lowered(program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Program:
    """The program for the kind of memory of the buffers, with a division at the end if the operation is a mean."""
    if operation and operation.mean and buffers.recv is not None and buffers.count:
        program = with_division(program, buffers.count * buffers.dtype.itemsize)
    return buffers.memory.lowered(program)


def bind(
    comm: MPI.Intracomm,
    program: Program,
    buffers: CheckedBuffers,
    addresses: Sequence[int],
    operation: Operation | None,
    scratch: Any,
    tag: int,
) -> PythonSteps:
    """Bind a `lowered` program to buffers at these addresses."""
    bases, tags = (*addresses, address(scratch)), [tag]
    requests: list[Any] = []
    for outgoing, peer, (buffer, start, size), _ in program.messages:
        memory = [MPI.buffer.fromaddress(bases[buffer] + start, size), MPI.BYTE]
        requests.append(Begun(_MessageStart(comm.Isend if outgoing else comm.Irecv, memory, peer, tags)))
    binder = StepBinder(program, bases, requests, buffers.dtype, operation, comm.size)
    marks: dict[int, Any] = {}
    launcher = None
    if is_native(program):
        calls = [_native_call(comm, program, buffers, operation, requests), *map(binder.call, program.steps[1:])]
    elif launcher := buffers.memory.launcher(list(bases), buffers.dtype, operation, comm.size):
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


class _MessageStart:
    """Begins a message with the tag that the executable has then."""

    def __init__(self, begin: Callable[..., MPI.Request], memory: list[Any], peer: int, tag: list[int]) -> None:
        self._begin, self._memory, self._peer, self._tag = begin, memory, peer, tag

    def __call__(self) -> MPI.Request:
        return self._begin(self._memory, self._peer, self._tag[0])


def _native_call(
    comm: MPI.Intracomm, program: Program, buffers: CheckedBuffers, operation: Operation | None, requests: list[Any]
) -> Callable[[], object]:
    """The call that runs, or starts, the native collective."""
    step: Any = program.steps[0]
    if step.form == "blocking":
        return native.bound(comm, step, buffers, operation)
    requests.append(native.request(comm, step, buffers, operation))
    start: Callable[[], object] = requests[0].Start
    return start
