"""Signals: events of CUDA that the processes of a host share, so that kernels wait for work of other processes.

A signal has two events.  Its process records `ready` after all work that the caller has queued on its buffers, and
`done` after its own kernels.  An event is exported once, and recorded in every call.

Whoever waits for an event waits for its latest record, so messages must separate records from waits.  All ranks record
`ready` before they exchange their signals, and only then wait for `ready` of the others.  All ranks record `done`
before the barrier, and only then check `done` of the others.  A rank records an event again in a later call, after all
ranks have reached that barrier.  A rank that still checks `done` then waits longer than necessary, for work that does
not depend on it.

The events are never destroyed: the behavior of processes that have them open would be undefined.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from ...arguments.device_arrays import cupy
from ...arguments.streams import follow, is_complete, own_stream, wait_for
from .ipc import HANDLE, NotShareable, new_number

COLUMNS = 2 + 2 * HANDLE // 8  # of a signal in a table


class SignalHandle(NamedTuple):
    """A signal of another process, and whether all ranks have opened it."""

    number: int
    handles: bytes
    agreed: bool

    def numbers(self) -> list[int]:
        """The handle as a part of a row of a table."""
        return [self.number, self.agreed, *memoryview(self.handles).cast("q")]

    @classmethod
    def read(cls, numbers: Sequence[int]) -> SignalHandle | None:
        """The handle with these numbers; None if there is no signal."""
        number, agreed, *handles = numbers
        return cls(number, struct.pack(f"{len(handles)}q", *handles), bool(agreed)) if number else None


class _Event:
    """An event of another process."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def synchronize(self) -> None:
        """Wait for its latest record."""
        cupy().cuda.runtime.eventSynchronize(self.ptr)


class Signal:
    """The two events of this process, for one collective at a time."""

    def __init__(self, device: int) -> None:
        xp = cupy()
        self.device, self.number = device, new_number()
        try:
            with xp.cuda.Device(device):
                events = [xp.cuda.Event(disable_timing=True, interprocess=True) for _ in range(2)]
                self.handles = b"".join(bytes(xp.cuda.runtime.ipcGetEventHandle(event.ptr)) for event in events)
        except xp.cuda.runtime.CUDARuntimeError as error:
            raise NotShareable(f"an event cannot be exported: {error}") from None
        self._ready, self.done = events
        _made.append(self)

    def announce(self) -> None:
        """Say that the buffers are ready when the work that the caller has queued on them is complete."""
        follow(self.device)
        self._ready.record(own_stream(self.device))

    def finish(self) -> None:
        """Say that the kernels of this rank are complete when those are that it has launched."""
        self.done.record(own_stream(self.device))

    def after(self, others: Sequence[SignalHandle]) -> Callable[[], None]:
        """A call that makes later kernels of this rank wait until the buffers of other ranks are ready."""
        wait, stream = cupy().cuda.runtime.streamWaitEvent, own_stream(self.device).ptr
        events = [opened(other, self.device)[0].ptr for other in others]

        def launch() -> None:
            for event in events:
                wait(stream, event)

        return launch


class AllDone:
    """The completion of the kernels of all ranks, which can be waited for like a request."""

    def __init__(self, mine: Signal, others: Sequence[SignalHandle]) -> None:
        self._left = [mine.done, *(opened(other, mine.device)[1] for other in others)]

    def Test(self) -> bool:
        """Whether all are complete."""
        self._left = [event for event in self._left if not is_complete(event)]
        return not self._left

    def Wait(self) -> None:
        """Wait until all are complete, while MPI makes progress."""
        for event in self._left:
            wait_for(event)


_made: list[Signal] = []  # all of them, so that their events are never destroyed
_idle: defaultdict[int, list[Signal]] = defaultdict(list)  # by GPU; used again for later collectives


def take(device: int) -> Signal:
    """Return a signal that no collective uses; raises NotShareable if CUDA cannot export events."""
    try:
        return _idle[device].pop()
    except IndexError:
        return Signal(device)


def give_back(signal: Signal) -> None:
    """Let later collectives use the signal."""
    _idle[signal.device].append(signal)


@cache
def _opened(number: int, handles: bytes, device: int) -> tuple[_Event, _Event]:
    xp = cupy()
    try:
        with xp.cuda.Device(device):
            ready, done = (xp.cuda.runtime.ipcOpenEventHandle(handles[at : at + HANDLE]) for at in (0, HANDLE))
    except xp.cuda.runtime.CUDARuntimeError as error:
        raise NotShareable(f"ipcOpenEventHandle failed: {error}") from None
    return _Event(ready), _Event(done)


def opened(handle: SignalHandle, device: int) -> tuple[_Event, _Event]:
    """The events of a signal of another process, which are opened at first use; raises NotShareable if they cannot."""
    return _opened(handle.number, handle.handles, device)
