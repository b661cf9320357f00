"""Binds programs to addresses: each step becomes a call without arguments, so that the hot loop is `run_all`.

What a call touches is memory by address, so a bound program keeps no caller's array alive; it runs only in calls that
bring arrays with just these addresses, lengths and dtypes.  Where buffers lie on a GPU, `pycoll.memory` adapts the
program first, and a launcher makes the calls that are the GPU's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from . import native
from .buffers import Arguments
from .counters import counted
from .memory import address
from .ops import Operation, real_dtype
from .program import RECV, Apply, Collective, CopyBytes, Divide, Finish, Program, Region, Start, Step, Wait
from .trace import recorder
from .trace.steps import Tracer

if TYPE_CHECKING:
    from .cuda.launch import Launcher
    from .cuda.streams import Mark

_BYTE = np.dtype(np.uint8)

Calls = list[Callable[[], object]]


@dataclass
class Bound:
    """A program bound to addresses, with its scratch."""

    program: Program
    calls: Calls
    requests: list[MPI.Prequest]
    scratch: Any
    marks: dict[int, Mark] = field(default_factory=dict)  # of steps that are a GPU's and waited for
    tracer: Tracer | None = None  # what records its runs
    shortcut: tuple = ()
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

    def free(self) -> None:
        """Give the requests back to MPI."""
        for request in self.requests:
            request.Free()


def run_all(calls: Iterable[Callable[[], object]]) -> None:
    """Run a bound program; a floating-point error that the caller wants raised is raised when all is done.

    The other ranks would wait for ever for what comes after it.
    """
    rest = iter(calls)
    try:
        for call in rest:
            call()
    except (ArithmeticError, Warning):
        for call in rest:
            with contextlib.suppress(ArithmeticError, Warning):
                call()
        raise


def freed_at_its_end(bound: Bound) -> Bound:
    """The same, whose last calls free its requests."""
    bound.calls.extend(request.Free for request in bound.requests)
    return bound


def adapted(program: Program, arguments: Arguments, operation: Operation | None) -> Program:
    """The program with the division that a mean ends with, for the memory that the buffers lie in."""
    if operation and operation.mean and arguments.recv is not None and arguments.count:
        program = _with_division(program, arguments.count * arguments.dtype.itemsize)
    return arguments.memory.adapted(program)


@lru_cache(maxsize=512)
def _with_division(program: Program, nbytes: int) -> Program:
    return replace(program, steps=[*program.steps, Divide(Region(RECV, 0, nbytes))])


def bind(
    comm: MPI.Intracomm,
    program: Program,
    arguments: Arguments,
    operation: Operation | None,
    scratch: Any,
    tag: int,
) -> Bound:
    """The program, which is `adapted`, bound to these buffers, with requests for all its messages."""
    bases = [address(arguments.send), address(arguments.recv), address(scratch)]
    requests: list[Any] = []
    for message in program.messages:
        init = comm.Send_init if message.outgoing else comm.Recv_init
        requests.append(init([_memory(message.region, bases), MPI.BYTE], message.peer, tag))
    if program.steps and type(program.steps[0]) is Collective and program.steps[0].form != "blocking":
        requests.append(native.request(comm, program.steps[0], arguments, operation))
    launcher = arguments.memory.launcher(bases, arguments.dtype, operation, comm.size)
    marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish} if launcher else {}
    calls = _Binder(comm, program, requests, bases, arguments, operation, launcher, marks).calls()
    bound = Bound(program, calls, requests, scratch, marks)
    if recorder.current:
        bound.record(Tracer(recorder.current, comm, program, arguments.mean_size(comm.size), tag))
    return bound


def _memory(region: Region, bases: list[int]) -> MPI.buffer:
    return MPI.buffer.fromaddress(bases[region.buffer] + region.start, region.size)


def _array(region: Region, bases: list[int], dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(_memory(region, bases), dtype)  # type: ignore[call-overload]


@dataclass
class _Binder:
    """Makes each step of a program a call without arguments."""

    comm: MPI.Intracomm
    program: Program
    requests: list[MPI.Prequest]
    bases: list[int]
    arguments: Arguments
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
                result = _array(region, self.bases, real_dtype(self.arguments.dtype))
                return partial(np.divide, result, self.comm.size, out=result)
            case Collective() if step.form == "blocking":
                return native.bound(self.comm, step, self.arguments, self.operation)
            case Collective():
                return self.requests[0].Start
            case Finish(number):
                return self.marks[number].Wait
        raise AssertionError(f"{step} is a GPU's")

    def _array(self, region: Region) -> np.ndarray:
        if region not in self.arrays:
            self.arrays[region] = _array(region, self.bases, self.arguments.dtype)
        return self.arrays[region]
