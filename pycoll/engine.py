"""Runs programs over mpi4py's point-to-point messages.

A program bound to three addresses is a flat list of calls without arguments: the hot loop is
``for call in calls: call()``.  What a call touches is memory by address, so a bound program keeps no
caller's array alive; it runs only in calls that bring arrays with just these addresses, lengths and dtypes.
Where buffers lie on a GPU, `pycoll.memory` adapts the program, and a launcher makes the calls that are the GPU's.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from . import settings
from .buffers import IN_PLACE, Arguments
from .counters import counted
from .errors import CollectiveTimeout
from .memory import HOST, address, is_host
from .ops import Operation, real_dtype
from .program import RECV, Apply, CopyBytes, Divide, Finish, Program, Region, Start, Step, Wait

if TYPE_CHECKING:
    from .cuda.launch import Launcher
    from .cuda.streams import Mark

KEPT = 256  # bound programs kept for each communicator
BLOCKING = 1  # the tag of blocking collectives; each of the others in flight has its own
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
    shortcut: tuple = ()
    _waits: list[MPI.Prequest | Mark | None] | None = None

    @property
    def waits(self) -> list[MPI.Prequest | Mark | None]:
        """For each call what it waits for, if it does."""
        if self._waits is None:
            self._waits = [self._awaited(step) for step in self.program.steps]
            self._waits += [None] * (len(self.calls) - len(self._waits))
        return self._waits

    def _awaited(self, step: Step) -> MPI.Prequest | Mark | None:
        if type(step) is Wait:
            return self.requests[step.message]
        return self.marks[step.step] if type(step) is Finish else None

    def free(self) -> None:
        """Give the requests back to MPI."""
        for request in self.requests:
            request.Free()


class Shortcut(NamedTuple):
    """Leads from the very objects of a call to its program.

    An array with a weak reference to it cannot be resized: while it lives, its address stays.
    """

    bound: Bound
    send: Callable[[], Any]
    recv: Callable[[], Any]
    writeable: bool  # the receive buffer always, since it lies on a GPU
    dtype: np.dtype
    op: object  # kept, so that its id is not used again


class Channel:
    """What pycoll keeps for one communicator: a private duplicate, scratch memory, bound programs."""

    def __init__(self, comm: MPI.Intracomm, private: MPI.Intracomm) -> None:
        self.comm = private
        self.size = comm.size
        self.choices = settings.Choices(self.shortcuts_forgotten)
        self.shortcuts: dict[tuple, Shortcut] = {}  # at most one for each bound program
        self.broken: str | None = None  # why it cannot be used any more
        self._bound: dict[tuple, Bound] = {}  # the one that `bind` gave out last stands last
        self._scratch: dict[Hashable, Any] = {HOST.scratch: HOST.room(1 << 16)}  # for each kind of memory
        self._tags = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - BLOCKING
        self._started = 0

    def check_usable(self) -> None:
        """CollectiveTimeout if a collective on it did not finish in time."""
        if self.broken:
            raise CollectiveTimeout(f"this communicator cannot be used any more: {self.broken}")

    def next_tag(self) -> int:
        """The tag of the next collective that is not blocking; all ranks start these in the same order."""
        self._started += 1
        return BLOCKING + 1 + (self._started - 1) % self._tags

    def bind(self, program: Program, arguments: Arguments, operation: Operation | None) -> Bound:
        """The program bound to these buffers, for a blocking call; the last `KEPT` are kept."""
        program = _adapted(program, arguments, operation)
        memory = arguments.memory
        scratch = self._scratch.get(memory.scratch)
        if scratch is None or program.scratch > scratch.size:  # all programs share it, so they must be bound anew
            self.clear()
            self._scratch[memory.scratch] = scratch = memory.room(program.scratch)
        if operation and not operation.predefined:  # its handle may be freed and used again, so nothing is kept
            return freed_at_its_end(self._bind(program, arguments, operation, scratch, BLOCKING))
        addresses = (address(arguments.send), address(arguments.recv))
        key = (program, *addresses, arguments.dtype, operation and operation.name)
        bound = self._bound.pop(key, None) or self._bind(program, arguments, operation, scratch, BLOCKING)
        if len(self._bound) >= KEPT:
            self._drop(next(iter(self._bound)))
        self._bound[key] = bound
        return bound

    def bind_apart(self, program: Program, arguments: Arguments, operation: Operation | None, tag: int) -> Bound:
        """The program bound to these buffers with scratch and a tag of its own, so that others can run meanwhile."""
        program = _adapted(program, arguments, operation)
        return self._bind(program, arguments, operation, arguments.memory.room(program.scratch), tag)

    def remember(
        self, bound: Bound, key: tuple, arguments: Arguments, sendbuf: object, recvbuf: object, op: object
    ) -> None:
        """Let later calls with the very same objects find the bound program under `key`, which has their ids."""
        send, recv = _reference(sendbuf, arguments.send), _reference(recvbuf, arguments.recv)
        if send and recv:
            self.shortcuts.pop(bound.shortcut, None)
            self.shortcuts[key] = Shortcut(bound, send, recv, not is_host(arguments.recv), arguments.dtype, op)
            bound.shortcut = key

    def shortcuts_forgotten(self) -> None:
        """Look at all arguments anew."""
        self.shortcuts.clear()

    def _bind(
        self, program: Program, arguments: Arguments, operation: Operation | None, scratch: Any, tag: int
    ) -> Bound:
        bases = [address(arguments.send), address(arguments.recv), address(scratch)]
        requests = []
        for message in program.messages:
            init = self.comm.Send_init if message.outgoing else self.comm.Recv_init
            requests.append(init([_memory(message.region, bases), MPI.BYTE], message.peer, tag))
        launcher = arguments.memory.launcher(bases, arguments.dtype, operation, self.size)
        marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish} if launcher else {}
        calls = _Binder(program, requests, bases, arguments.dtype, operation, self.size, launcher, marks).calls()
        return Bound(program, calls, requests, scratch, marks)

    def _drop(self, key: tuple) -> None:
        bound = self._bound.pop(key)
        self.shortcuts.pop(bound.shortcut, None)
        bound.free()

    def clear(self) -> None:
        """Forget all bound programs."""
        for key in list(self._bound):
            self._drop(key)

    def forget_scratch(self) -> None:
        """Let go of scratch memory, and so of all programs bound to it."""
        self.clear()
        self._scratch = {}

    def free(self) -> None:
        """Give everything back to MPI."""
        if not self.broken:  # else messages are under way that will never end
            self.clear()
            self.comm.Free()


def freed_at_its_end(bound: Bound) -> Bound:
    """The same, whose last calls free its requests."""
    bound.calls.extend(request.Free for request in bound.requests)
    return bound


def _adapted(program: Program, arguments: Arguments, operation: Operation | None) -> Program:
    """The program with the division that a mean ends with, for the memory that the buffers lie in."""
    if operation and operation.mean and arguments.recv is not None and arguments.count:
        program = _with_division(program, arguments.count * arguments.dtype.itemsize)
    return arguments.memory.adapted(program)


@lru_cache(maxsize=512)
def _with_division(program: Program, nbytes: int) -> Program:
    return Program([*program.steps, Divide(Region(RECV, 0, nbytes))], program.messages, program.scratch)


def _reference(buffer: object, array: Any) -> Callable[[], object] | None:
    """A weak reference to a caller's array; None where a copy or a view stands in for it."""
    if isinstance(buffer, np.ndarray) or (buffer is array and buffer is not None):
        return weakref.ref(buffer) if array is None or buffer is array else None
    return (lambda: buffer) if buffer is None or buffer is IN_PLACE else None


def _memory(region: Region, bases: list[int]) -> MPI.buffer:
    return MPI.buffer.fromaddress(bases[region.buffer] + region.start, region.size)


def _array(region: Region, bases: list[int], dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(_memory(region, bases), dtype)  # type: ignore[call-overload]


@dataclass
class _Binder:
    """Makes each step of a program a call without arguments."""

    program: Program
    requests: list[MPI.Prequest]
    bases: list[int]
    dtype: np.dtype
    operation: Operation | None
    size: int
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
                result = _array(region, self.bases, real_dtype(self.dtype))
                return partial(np.divide, result, self.size, out=result)
            case Finish(number):
                return self.marks[number].Wait
        raise AssertionError(f"{step} is a GPU's")

    def _array(self, region: Region) -> np.ndarray:
        if region not in self.arrays:
            self.arrays[region] = _array(region, self.bases, self.dtype)
        return self.arrays[region]


# Channels by the handle of the caller's communicator.  A handle may be used again once its communicator is
# freed, so each channel is also an attribute of that communicator, whose deletion removes it.
channels: dict[int, Channel] = {}


def _detach(comm: MPI.Comm, keyval: int, channel: Channel) -> None:
    from .progress import settle

    settle(channel)
    for handle in [handle for handle, other in channels.items() if other is channel]:
        del channels[handle]
    channel.free()


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_detach)


def check_communicator(comm: object) -> None:
    """TypeError unless this is a communicator that collectives can run on."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")


def _duplicate(comm: MPI.Intracomm) -> MPI.Intracomm:
    from .progress import until  # which builds on this module

    private, request = comm.Idup()  # what is in flight must go on meanwhile
    until(request.Test)
    return private


def _finish_duplicate(comm: MPI.Intracomm) -> Channel | None:
    """The channel of a communicator whose private duplicate all ranks have begun to make, by Idup."""
    from .progress import until

    pending = getattr(comm, "pending", None)
    if pending is None:
        return None
    private, request = pending
    until(request.Test)
    comm.pending = None  # type: ignore[attr-defined]
    return _register(comm, private)


def _register(comm: MPI.Intracomm, private: MPI.Intracomm) -> Channel:
    channel = Channel(comm, private)
    channel.choices.update(getattr(comm, "inherited", {}))
    comm.Set_attr(_keyval(), channel)
    channels[comm.handle] = channel
    return channel


def attached(comm: MPI.Intracomm) -> Channel | None:
    """The communicator's channel, if it has one."""
    return channels.get(comm.handle) or _finish_duplicate(comm)


def attach(comm: MPI.Intracomm | None = None) -> Channel:
    """The communicator's channel; the first time, all its ranks must call this together."""
    comm = MPI.COMM_WORLD if comm is None else comm
    check_communicator(comm)
    return attached(comm) or _register(comm, _duplicate(MPI.Intracomm(comm)))  # not by a subclass's Dup


def finish(steps: Iterator[Callable[[], object]]) -> None:
    """Do what is left of a program after a floating-point error, so that the other ranks need not wait for ever."""
    for step in steps:
        with contextlib.suppress(ArithmeticError, Warning):
            step()


def segments(nbytes: int) -> int:
    """Into how many segments a pipelined algorithm cuts a vector."""
    return max(1, -(-nbytes // settings.PIPELINE))


def configure(*, segment: int | None = None, pipeline: int | None = None) -> None:
    """Set the sizes of segments in bytes, on all ranks alike; programs bound before are forgotten."""
    for name, value in (("SEGMENT", segment), ("PIPELINE", pipeline)):
        if value is None:
            continue
        if value < 1:
            raise ValueError(f"{name.lower()}={value} is not a positive number of bytes")
        setattr(settings, name, value)
    forget_programs()


def forget_programs() -> None:
    """Bind all programs anew at their next call."""
    for channel in channels.values():
        channel.clear()
