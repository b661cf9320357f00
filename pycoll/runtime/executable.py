"""Executables: programs bound to addresses, each step a call without arguments.

An executable knows the caller's memory by address, so it keeps no array alive.  It runs only in calls that bring arrays
with just these addresses, lengths and dtypes.  For buffers in GPU memory a launcher makes the calls of the steps that
run on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import Launcher
from ..arguments.ops import Operation, real_dtype
from ..base.counters import counted
from ..base.errors import with_hint
from ..compiler.program import RECV, Apply, Collective, CopyBytes, Divide, Finish, Program, Region, Start, Step, Wait
from . import native
from .recording import recorder
from .recording.steps import RECORDING, Tracer

if TYPE_CHECKING:
    from ..arguments.streams import Mark
    from .plan import Plan

_BYTE = np.dtype(np.uint8)

Calls = list[Callable[[], object]]


class Executable:
    """A program bound to addresses, with its scratch."""

    def __init__(
        self,
        program: Program,
        calls: Calls,
        requests: list[Any],
        scratch: Any,
        marks: dict[int, Mark] | None = None,
        tag: list[int] | None = None,
    ) -> None:
        self.program, self.calls, self.requests, self.scratch = program, calls, requests, scratch
        self.marks = marks  # of steps on a GPU that are waited for
        self.tag = [] if tag is None else tag  # of its messages, where each run has another
        self.tracer: Tracer | None = None  # what records its runs
        self.known: list[tuple[Plan, tuple[int, int]]] = []  # where calls find it
        self.failed = False  # a run ended early, so that messages may be pending
        self._waits: list[Any] | None = None

    @property
    def waits(self) -> list[MPI.Prequest | Mark | None]:
        """For each call what it waits for, if it does."""
        if self._waits is None:
            waits = [self._awaited(step) for step in self.program.steps]
            self._waits = self.tracer.waits(waits) if self.tracer else waits
            self._waits += [None] * (len(self.calls) - len(self._waits))
        return self._waits

    def _awaited(self, step: Step) -> MPI.Prequest | Mark | None:
        if type(step) is Wait:
            request: MPI.Prequest = self.requests[step.message]
            return request
        return self.marks[step.step] if self.marks and type(step) is Finish else None

    def record(self, tracer: Tracer) -> None:
        """From now on its runs are recorded."""
        self.tracer, self.calls = tracer, tracer.calls(self.calls)

    def run(self, calls: Calls | None = None) -> None:
        """Make all calls, or these; an error is raised after the last call, because other ranks depend on its messages.

        Python handles signals between two calls, never between taking a call from the list and making it.  What a
        signal handler raises is raised after the last call, too, as it would be after a collective of MPI.  If a
        call could not end, those after it are not made, and `failed` is set.
        """
        rest = iter(self.calls if calls is None else calls)
        call = None
        try:
            for call in rest:
                call()
        except BaseException as error:
            self._finish(rest, call, error)

    def _finish(self, rest: Iterator[Callable[[], object]], call: object, error: BaseException) -> None:
        self.failed = True  # unless all calls are made
        caught = error
        while not _broke_off(call, caught):
            try:
                for call in rest:
                    call()
            except BaseException as another:
                caught = another
            else:
                self.failed = False
                break
        raise with_hint(error)

    def free(self) -> None:
        """Give the requests back to MPI."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.Free()


class Message:
    """A message that has another tag each time it is started."""

    def __init__(self, begin: Callable[..., MPI.Request], memory: list[Any], peer: int, tag: list[int]) -> None:
        self._begin, self._memory, self._peer, self._tag = begin, memory, peer, tag
        self._request = MPI.REQUEST_NULL

    def Start(self) -> None:
        """Start it."""
        self._request = self._begin(self._memory, self._peer, self._tag[0])

    def Test(self) -> bool:
        """Whether it is complete."""
        return self._request.Test()

    def Wait(self) -> bool:
        """Wait until it is complete."""
        return self._request.Wait()

    def Free(self) -> None:
        """Do nothing: the request frees itself when it is complete."""


def _broke_off(call: Any, error: BaseException) -> bool:
    """Whether a call ended in the middle, with this error, which was caught where the call was made.

    Arithmetic is done before it raises an error.  A signal handler runs after a call, unless the call is Python code.
    """
    if isinstance(error, ArithmeticError | Warning):
        return False
    inner = error.__traceback__ and error.__traceback__.tb_next
    code = getattr(getattr(call, "func", call), "__code__", None)
    if code in RECORDING:
        return False
    return isinstance(error, MPI.Exception) or (inner is not None and inner.tb_frame.f_code is code)


def freed_at_its_end(executable: Executable) -> Executable:
    """The same, whose last calls free its requests."""
    executable.calls.extend(request.Free for request in executable.requests)
    return executable


def lowered(program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Program:
    """The program with the division that a mean ends with, for the memory that the buffers lie in."""
    if operation and operation.mean and buffers.recv is not None and buffers.count:
        program = _with_division(program, buffers.count * buffers.dtype.itemsize)
    return buffers.memory.lowered(program)


@lru_cache(maxsize=512)
def _with_division(program: Program, nbytes: int) -> Program:
    return replace(program, steps=[*program.steps, Divide(Region(RECV, 0, nbytes))])


def bind(
    comm: MPI.Intracomm,
    program: Program,
    buffers: CheckedBuffers,
    operation: Operation | None,
    scratch: Any,
    tag: int | None,
) -> Executable:
    """The program, which is `lowered`, bound to these buffers, with requests for all its messages.

    Without a tag they get the one that is in `Executable.tag` when they are started.
    """
    bases = [address(buffers.send), address(buffers.recv), address(scratch)]
    requests: list[Any] = []
    tags: list[int] = []
    for outgoing, peer, region, _ in program.messages:
        memory = [from_address(bases[region.buffer] + region.start, region.size), MPI.BYTE]
        if tag is None:
            requests.append(Message(comm.Isend if outgoing else comm.Irecv, memory, peer, tags))
        else:
            requests.append((comm.Send_init if outgoing else comm.Recv_init)(memory, peer, tag))
    if program.steps and type(program.steps[0]) is Collective and program.steps[0].form != "blocking":
        requests.append(native.request(comm, program.steps[0], buffers, operation))
    launcher = buffers.memory.launcher(bases, buffers.dtype, operation, comm.size)
    marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish} if launcher else None
    call = _host_call(comm, program, requests, bases, buffers, operation)
    if launcher:
        call = _device_call(launcher, marks or {}, call)
    calls = [call(number, step) for number, step in enumerate(program.steps)]
    executable = Executable(program, calls, requests, scratch, marks, tags)
    if recorder.current:
        executable.record(Tracer(recorder.current, comm, program, buffers.mean_size(comm.size), tag or 0))
    return executable


from_address = MPI.buffer.fromaddress
Binder = Callable[[int, Any], Callable[[], object]]  # from a step and its number to a call without arguments


def _host_call(
    comm: MPI.Intracomm,
    program: Program,
    requests: list[Any],
    bases: list[int],
    buffers: CheckedBuffers,
    operation: Operation | None,
) -> Binder:
    """What makes each step of a program a call on the host; it is quick, because calls wait for it."""
    arrays: dict[Region, np.ndarray] = {}  # NumPy looks for no overlaps where operand and result are one object

    def array(region: Region, dtype: np.dtype = buffers.dtype) -> np.ndarray:
        memory: Any = from_address(bases[region.buffer] + region.start, region.size)
        return np.frombuffer(memory, dtype)

    def same(region: Region) -> np.ndarray:
        found = arrays.get(region)
        if found is None:
            found = arrays[region] = array(region)
        return found

    def call(number: int, step: Any) -> Callable[[], object]:
        kind = type(step)
        bound: Callable[[], object]
        if kind is Wait:
            bound = requests[step.message].Wait
        elif kind is Start:
            message = program.messages[step.message]
            bound = requests[step.message].Start
            if message.outgoing:
                bound = counted(bound, message.region.size)
        elif kind is Apply:
            assert operation
            bound = operation.bound(same(step.left), same(step.right), same(step.out))
        elif kind is CopyBytes:
            bound = partial(np.copyto, array(step.to, _BYTE), array(step.source, _BYTE))
        elif kind is Divide:
            # complex numbers as pairs of real ones, whose rounding does not depend on where they lie
            result = array(step.region, real_dtype(buffers.dtype))
            bound = partial(np.divide, result, comm.size, out=result)
        else:
            assert kind is Collective, f"{step} is a step for a GPU"
            blocking = step.form == "blocking"
            bound = native.bound(comm, step, buffers, operation) if blocking else requests[0].Start
        return bound

    return call


def _device_call(launcher: Launcher, marks: dict[int, Mark], on_host: Binder) -> Binder:
    """The same where a GPU does some of the steps."""

    def call(number: int, step: Any) -> Callable[[], object]:
        if type(step) is Finish:
            return marks[step.step].Wait
        return launcher.call(step, marks.get(number)) if launcher.does(step) else on_host(number, step)

    return call
