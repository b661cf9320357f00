"""Executables: programs bound to addresses, each step a call without arguments.

An executable knows the caller's memory by address, so it keeps no array alive.  It runs only in calls that bring arrays
with just these addresses, lengths and dtypes.  For buffers in GPU memory a launcher makes the calls of the steps that
run on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
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
from .recording.steps import Tracer

if TYPE_CHECKING:
    from ..arguments.streams import Mark
    from .plan import Plan

_BYTE = np.dtype(np.uint8)

Calls = list[Callable[[], object]]


@dataclass
class Executable:
    """A program bound to addresses, with its scratch."""

    program: Program
    calls: Calls
    requests: list[MPI.Prequest]
    scratch: Any
    marks: dict[int, Mark] = field(default_factory=dict)  # of steps on a GPU that are waited for
    tracer: Tracer | None = None  # what records its runs
    tag: list[int] = field(default_factory=list)  # of its messages, where each run has another
    known: list[tuple[Plan, tuple[int, int]]] = field(default_factory=list)  # where calls find it
    failed: bool = False  # a run ended early, so that messages may be pending
    _waits: list[MPI.Prequest | Mark | None] | None = None

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
            return self.requests[step.message]
        return self.marks[step.step] if type(step) is Finish else None

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
    for message in program.messages:
        memory = [_memory(message.region, bases), MPI.BYTE]
        if tag is None:
            begin = comm.Isend if message.outgoing else comm.Irecv
            requests.append(Message(begin, memory, message.peer, tags))
        else:
            init = comm.Send_init if message.outgoing else comm.Recv_init
            requests.append(init(memory, message.peer, tag))
    if program.steps and type(program.steps[0]) is Collective and program.steps[0].form != "blocking":
        requests.append(native.request(comm, program.steps[0], buffers, operation))
    launcher = buffers.memory.launcher(bases, buffers.dtype, operation, comm.size)
    marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish} if launcher else {}
    calls = _Binder(comm, program, requests, bases, buffers, operation, launcher, marks).calls()
    executable = Executable(program, calls, requests, scratch, marks, tag=tags)
    if recorder.current:
        executable.record(Tracer(recorder.current, comm, program, buffers.mean_size(comm.size), tag or 0))
    return executable


def _memory(region: Region, bases: list[int]) -> MPI.buffer:
    return MPI.buffer.fromaddress(bases[region.buffer] + region.start, region.size)


def _array(region: Region, bases: list[int], dtype: np.dtype) -> np.ndarray:
    memory: Any = _memory(region, bases)
    return np.frombuffer(memory, dtype)


@dataclass
class _Binder:
    """Makes each step of a program a call without arguments."""

    comm: MPI.Intracomm
    program: Program
    requests: list[MPI.Prequest]
    bases: list[int]
    buffers: CheckedBuffers
    operation: Operation | None
    launcher: Launcher | None
    marks: dict[int, Mark]
    # NumPy looks for no overlaps where operand and result are one object
    arrays: dict[Region, np.ndarray] = field(default_factory=dict)

    def calls(self) -> Calls:
        """The steps as calls."""
        if self.launcher:
            return [self._on_device(number, step) for number, step in enumerate(self.program.steps)]
        return [self._call(step) for step in self.program.steps]

    def _on_device(self, number: int, step: Step) -> Callable[[], object]:
        assert self.launcher
        return self.launcher.call(step, self.marks.get(number)) if self.launcher.does(step) else self._call(step)

    def _call(self, step: Step) -> Callable[[], object]:
        match step:
            case Start(number):
                start, message = self.requests[number].Start, self.program.messages[number]
                return counted(start, message.region.size) if message.outgoing else start
            case Wait(number):
                return self.requests[number].Wait
            case Apply():
                assert self.operation is not None
                return self.operation.bound(*map(self._array, step))
            case CopyBytes(source, to):
                return partial(np.copyto, _array(to, self.bases, _BYTE), _array(source, self.bases, _BYTE))
            case Divide(region):
                # complex numbers as pairs of real ones, whose rounding does not depend on where they lie
                result = _array(region, self.bases, real_dtype(self.buffers.dtype))
                return partial(np.divide, result, self.comm.size, out=result)
            case Collective() if step.form == "blocking":
                return native.bound(self.comm, step, self.buffers, self.operation)
            case Collective():
                return self.requests[0].Start
            case Finish(number):
                return self.marks[number].Wait
        raise AssertionError(f"{step} runs on a GPU")

    def _array(self, region: Region) -> np.ndarray:
        if region not in self.arrays:
            self.arrays[region] = _array(region, self.bases, self.buffers.dtype)
        return self.arrays[region]
