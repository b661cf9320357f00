"""Runs programs over mpi4py's point-to-point messages.

A program bound to three addresses is a flat list of calls without arguments: the hot loop is
``for call in calls: call()``.  What a call touches is memory by address, so a bound program keeps no
caller's array alive; it runs only in calls that bring arrays with just these addresses, lengths and dtypes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from .ops import Operation
from .program import RECV, Apply, Message, Move, Program, Region, Start, Wait

SEGMENT = int(os.environ.get("PYCOLL_SEGMENT", 4 << 20))
"""The longest message in bytes; the same on all ranks (environment variable PYCOLL_SEGMENT)."""
PIPELINE = int(os.environ.get("PYCOLL_PIPELINE", 128 << 10))
"""Into segments of how many bytes pipelined algorithms cut a vector (PYCOLL_PIPELINE)."""

KEPT = 64  # bound programs kept for each communicator
_TAG = 1
_BYTE = np.dtype(np.uint8)

Calls = list[Callable[[], object]]
Reference = Callable[[], object]


class Channel:
    """What pycoll keeps for one communicator: a private duplicate, scratch memory, bound programs."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm.Dup()
        self.size = comm.size
        self.shortcuts: dict[tuple, tuple[Calls, Reference, Reference, np.dtype]] = {}
        self._bound: dict[tuple, tuple[Calls, list[MPI.Prequest], Program]] = {}
        self._scratch = np.empty(1 << 16, np.uint8)

    def bind(
        self,
        program: Program,
        send: np.ndarray | None,
        recv: np.ndarray | None,
        dtype: np.dtype,
        operation: Operation | None,
        count: int,
    ) -> Calls:
        """The program as calls on these arrays; the last `KEPT` are kept.

        With a mean, the first `count` elements of `recv` are divided by the number of ranks in the end.
        """
        if program.scratch > self._scratch.size:  # all programs share it, so they must be bound anew
            self.clear()
            self._scratch = np.empty(program.scratch, np.uint8)
        bases = [0 if array is None else MPI.Get_address(array) for array in (send, recv, self._scratch)]
        key = (id(program), bases[0], bases[1], dtype, operation and operation.name)
        if key in self._bound:
            return self._bound[key][0]
        requests = [self._request(message, bases) for message in program.messages]
        calls = _calls(program, requests, bases, dtype, operation)
        if operation and operation.mean and recv is not None and count:
            result = _array(Region(RECV, 0, count * dtype.itemsize), bases, dtype)
            calls.append(partial(np.divide, result, self.size, out=result))
        if operation and not operation.predefined:  # its handle may be freed and used again
            calls += [request.Free for request in requests]
        else:
            while len(self._bound) >= KEPT:
                self._drop(next(iter(self._bound)))
            self._bound[key] = calls, requests, program  # which must live as long as its id is a key
        return calls

    def remember(self, key: tuple, calls: Calls, sendbuf: object, recvbuf: object, dtype: np.dtype) -> None:
        """Let a later call with the very same buffers go straight to its bound program.

        An array with a weak reference to it cannot be resized, so while it lives its address stays.
        """
        if all(isinstance(buffer, np.ndarray) or buffer in (None, MPI.IN_PLACE) for buffer in (sendbuf, recvbuf)):
            if len(self.shortcuts) >= 4 * KEPT:
                self.shortcuts.clear()
            self.shortcuts[key] = calls, _reference(sendbuf), _reference(recvbuf), dtype

    def _request(self, message: Message, bases: list[int]) -> MPI.Prequest:
        init = self.comm.Send_init if message.outgoing else self.comm.Recv_init
        return init([_memory(message.region, bases), MPI.BYTE], message.peer, _TAG)

    def _drop(self, key: tuple) -> None:
        self.shortcuts.clear()
        for request in self._bound.pop(key)[1]:
            request.Free()

    def clear(self) -> None:
        """Forget all bound programs."""
        for key in list(self._bound):
            self._drop(key)

    def free(self) -> None:
        """Give everything back to MPI."""
        self.clear()
        self.comm.Free()


def _reference(buffer: object) -> Reference:
    return weakref.ref(buffer) if isinstance(buffer, np.ndarray) else lambda: buffer


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
                left, right, out = (_array(region, bases, dtype) for region in step)
                calls.append(partial(operation.combine, left, right, out=out))
            case Move(source, to):
                calls.append(partial(np.copyto, _array(to, bases, _BYTE), _array(source, bases, _BYTE)))
    return calls


# Channels by the handle of the caller's communicator.  A handle may be used again once its communicator is
# freed, so each channel is also an attribute of that communicator, whose deletion removes it.
channels: dict[int, Channel] = {}


def _detach(comm: MPI.Comm, keyval: int, channel: Channel) -> None:
    for handle in [handle for handle, other in channels.items() if other is channel]:
        del channels[handle]
    channel.free()


_KEYVAL = MPI.Comm.Create_keyval(delete_fn=_detach)


def check_communicator(comm: object) -> None:
    """TypeError unless this is a communicator that collectives can run on."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")


def attach(comm: MPI.Intracomm) -> Channel:
    """The communicator's channel; the first time, all its ranks must call this together."""
    channel = channels.get(comm.handle)
    if channel is None:
        channel = Channel(comm)
        comm.Set_attr(_KEYVAL, channel)
        channels[comm.handle] = channel
    return channel


def segments(nbytes: int) -> int:
    """Into how many segments a pipelined algorithm cuts a vector."""
    return max(1, -(-nbytes // PIPELINE))


def configure(*, segment: int | None = None, pipeline: int | None = None) -> None:
    """Set the sizes of segments in bytes, on all ranks alike; programs bound before are forgotten."""
    global SEGMENT, PIPELINE
    SEGMENT = segment or SEGMENT
    PIPELINE = pipeline or PIPELINE
    for channel in channels.values():
        channel.clear()
