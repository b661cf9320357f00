"""Runs programs over mpi4py's point-to-point messages.

A program bound to three addresses is a flat list of calls without arguments: the hot loop is
``for call in calls: call()``.  What a call touches is memory by address, so a bound program keeps no
caller's array alive; it runs only in calls that bring arrays with just these addresses, lengths and dtypes.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .buffers import IN_PLACE, Arguments
from .ops import Operation
from .program import RECV, Apply, CopyBytes, Program, Region, Start, Wait


def _bytes_from(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"environment variable {variable}={text!r} is not a positive number of bytes")
    return int(text)


SEGMENT = _bytes_from("PYCOLL_SEGMENT", 4 << 20)
"""The longest message in bytes; the same on all ranks (environment variable PYCOLL_SEGMENT)."""
PIPELINE = _bytes_from("PYCOLL_PIPELINE", 128 << 10)
"""Into segments of how many bytes pipelined algorithms cut a vector (PYCOLL_PIPELINE)."""

KEPT = 256  # bound programs kept for each communicator
_TAG = 1
_BYTE = np.dtype(np.uint8)

Calls = list[Callable[[], object]]


@dataclass
class Bound:
    """A program bound to addresses.  It holds the program, whose id is part of its key."""

    program: Program
    calls: Calls
    requests: list[MPI.Prequest]
    shortcut: tuple = ()


class Shortcut(NamedTuple):
    """Leads from the very objects of a call to its calls.

    An array with a weak reference to it cannot be resized: while it lives, its address stays.
    """

    calls: Calls
    send: Callable[[], Any]
    recv: Callable[[], Any]
    dtype: np.dtype
    op: object  # kept, so that its id is not used again


class Channel:
    """What pycoll keeps for one communicator: a private duplicate, scratch memory, bound programs."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm.Dup()
        self.size = comm.size
        self.shortcuts: dict[tuple, Shortcut] = {}  # at most one for each bound program
        self._bound: dict[tuple, Bound] = {}  # the one that `bind` gave out last stands last
        self._scratch = np.empty(1 << 16, np.uint8)

    def bind(self, program: Program, arguments: Arguments, operation: Operation | None) -> Bound:
        """The program bound to these buffers; the last `KEPT` are kept."""
        if program.scratch > self._scratch.size:  # all programs share it, so they must be bound anew
            self.clear()
            self._scratch = np.empty(program.scratch, np.uint8)
        arrays = (arguments.send, arguments.recv, self._scratch)
        bases = [0 if array is None else MPI.Get_address(array) for array in arrays]
        if operation and not operation.predefined:  # its handle may be freed and used again, so nothing is kept
            bound = self._bind(program, bases, arguments, operation)
            bound.calls.extend(request.Free for request in bound.requests)
            return bound
        key = (id(program), bases[0], bases[1], arguments.dtype, operation and operation.name)
        bound = self._bound.pop(key) if key in self._bound else self._bind(program, bases, arguments, operation)
        if len(self._bound) >= KEPT:
            self._drop(next(iter(self._bound)))
        self._bound[key] = bound
        return bound

    def remember(
        self, bound: Bound, key: tuple, arguments: Arguments, sendbuf: object, recvbuf: object, op: object
    ) -> None:
        """Let later calls with the very same objects find the bound program under `key`, which has their ids."""
        send, recv = _reference(sendbuf, arguments.send), _reference(recvbuf, arguments.recv)
        if send and recv:
            self.shortcuts.pop(bound.shortcut, None)
            self.shortcuts[key] = Shortcut(bound.calls, send, recv, arguments.dtype, op)
            bound.shortcut = key

    def _bind(self, program: Program, bases: list[int], arguments: Arguments, operation: Operation | None) -> Bound:
        requests = []
        for message in program.messages:
            init = self.comm.Send_init if message.outgoing else self.comm.Recv_init
            requests.append(init([_memory(message.region, bases), MPI.BYTE], message.peer, _TAG))
        calls = _calls(program, requests, bases, arguments.dtype, operation)
        if operation and operation.mean and arguments.recv is not None and arguments.count:
            # complex numbers as pairs of real ones, whose rounding does not depend on where they lie
            real = np.empty(0, arguments.dtype).real.dtype
            result = _array(Region(RECV, 0, arguments.count * arguments.dtype.itemsize), bases, real)
            calls.append(partial(np.divide, result, self.size, out=result))
        return Bound(program, calls, requests)

    def _drop(self, key: tuple) -> None:
        bound = self._bound.pop(key)
        self.shortcuts.pop(bound.shortcut, None)
        for request in bound.requests:
            request.Free()

    def clear(self) -> None:
        """Forget all bound programs."""
        for key in list(self._bound):
            self._drop(key)

    def free(self) -> None:
        """Give everything back to MPI."""
        self.clear()
        self.comm.Free()


def _reference(buffer: object, array: np.ndarray | None) -> Callable[[], object] | None:
    """A weak reference to a caller's array; None where a copy or a view stands in for it."""
    if isinstance(buffer, np.ndarray):
        return weakref.ref(buffer) if buffer is array else None
    return (lambda: buffer) if buffer is None or buffer is IN_PLACE else None


def _memory(region: Region, bases: list[int]) -> MPI.buffer:
    return MPI.buffer.fromaddress(bases[region.buffer] + region.start, region.size)


def _array(region: Region, bases: list[int], dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(_memory(region, bases), dtype)  # type: ignore[call-overload]


def _calls(
    program: Program, requests: list[MPI.Prequest], bases: list[int], dtype: np.dtype, operation: Operation | None
) -> Calls:
    """Each step of a program as a call without arguments."""
    calls: Calls = []
    for step in program.steps:
        match step:
            case Start(number):
                calls.append(requests[number].Start)
            case Wait(number):
                calls.append(requests[number].Wait)
            case Apply():
                assert operation is not None
                calls.append(operation.bound(*(_array(region, bases, dtype) for region in step)))
            case CopyBytes(source, to):
                calls.append(partial(np.copyto, _array(to, bases, _BYTE), _array(source, bases, _BYTE)))
    return calls


# Channels by the handle of the caller's communicator.  A handle may be used again once its communicator is
# freed, so each channel is also an attribute of that communicator, whose deletion removes it.
channels: dict[int, Channel] = {}


def _detach(comm: MPI.Comm, keyval: int, channel: Channel) -> None:
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


def attach(comm: MPI.Intracomm) -> Channel:
    """The communicator's channel; the first time, all its ranks must call this together."""
    channel = channels.get(comm.handle)
    if channel is None:
        channel = Channel(comm)
        comm.Set_attr(_keyval(), channel)
        channels[comm.handle] = channel
    return channel


def finish(steps: Iterator[Callable[[], object]]) -> None:
    """Do what is left of a program after a floating-point error, so that the other ranks need not wait for ever."""
    for step in steps:
        with contextlib.suppress(ArithmeticError, Warning):
            step()


def segments(nbytes: int) -> int:
    """Into how many segments a pipelined algorithm cuts a vector."""
    return max(1, -(-nbytes // PIPELINE))


def configure(*, segment: int | None = None, pipeline: int | None = None) -> None:
    """Set the sizes of segments in bytes, on all ranks alike; programs bound before are forgotten."""
    global SEGMENT, PIPELINE
    for name, value in (("segment", segment), ("pipeline", pipeline)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} is not a positive number of bytes")
    SEGMENT = SEGMENT if segment is None else segment
    PIPELINE = PIPELINE if pipeline is None else pipeline
    for channel in channels.values():
        channel.clear()
