"""Streams and events of the stand-in for CuPy, and the faults that tests inject into them."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from typing import ClassVar

import numpy as np

SUCCESS, NOT_READY, ILLEGAL_ADDRESS = 0, 600, 700


class CUDARuntimeError(RuntimeError):
    """The error of a call of the CUDA runtime."""


class Faults:
    """Errors to come: `launch` and `run` count the kernels and copies until one fails; None means never.

    A failed launch raises an error at once.  A failure while running is found later, by whoever waits for any stream or
    event, and cannot be repaired, as after an illegal access on a GPU.
    """

    def __init__(self):
        self.clear()

    def clear(self):
        self.launch = self.run = None
        self.broken = False

    def check(self):
        if self.broken:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def launched(self):
        self.check()
        if self.launch is not None:
            self.launch -= 1
            if self.launch < 0:
                self.launch = None
                raise CUDARuntimeError("cudaErrorLaunchOutOfResources: too many resources requested for launch")

    def runs(self):
        """Whether the next kernel runs."""
        if self.run is not None and not self.broken:
            self.run -= 1
            self.broken = self.run < 0
        return not self.broken


faults = Faults()


class Stream:
    """A stream that runs queued work only when it is waited for, and then only its own."""

    null: Stream
    _all: ClassVar[dict[int, Stream]] = {}

    def __init__(self, null=False, non_blocking=False):
        self.ptr = 0 if null else id(self)
        self._queue, self._enqueued, self._done, self._lock = deque(), 0, 0, threading.RLock()
        self._all[self.ptr] = self

    def enqueue(self, task, ready=None, work=False):
        """Queue a task, which runs only once `ready()`; kernels and copies are `work`, which can fail."""
        if work:
            faults.launched()
        with self._lock:
            self._queue.append((task, ready, work))
            self._enqueued += 1

    def hold(self, ready):
        """Queue a kernel that runs until `ready()`."""
        self.enqueue(lambda: None, ready)

    def advance(self, until):
        with self._lock:
            while self._done < until:
                while not self._ready():
                    time.sleep(1e-4)
                self._next()
        faults.check()

    def reaches(self, place):
        """Run as much as is ready; return whether that includes everything before this place."""
        with self._lock:
            while self._done < place and self._ready():
                self._next()
            return self._done >= place

    def step(self):
        """Run one task, if there is one and it is ready."""
        with self._lock:
            if self._done < self._enqueued and self._ready():
                self._next()

    def _ready(self):
        ready = self._queue[0][1]
        return ready is None or ready()

    def _next(self):
        task, _, work = self._queue.popleft()
        self._done += 1
        if not work or faults.runs():
            with np.errstate(all="ignore"):
                task()

    @property
    def idle(self):
        return self._done == self._enqueued

    def synchronize(self):
        self.advance(self._enqueued)

    def record(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        stream, place = event.stream, event.place
        self.enqueue(lambda: None, lambda: stream.reaches(place))

    def use(self):
        _threads.current = self
        return self

    def __enter__(self):  # as in CuPy, `use` does not change the stack of with blocks
        _stack().append(self)
        return self.use()

    def __exit__(self, *_):
        _stack().pop()
        (_stack() or [Stream.null])[-1].use()


Stream.null = Stream._all[1] = Stream(null=True)

_threads = threading.local()


def _stack():
    if not hasattr(_threads, "stack"):
        _threads.stack = []
    return _threads.stack


def get_current_stream():
    return getattr(_threads, "current", Stream.null)


def launch(task, stream=None):
    """Queue a kernel or a copy on a stream, the current one by default."""
    (get_current_stream() if stream is None else stream).enqueue(task, work=True)


class Event:
    _all: ClassVar[weakref.WeakValueDictionary] = weakref.WeakValueDictionary()
    _numbers = itertools.count(1)

    def __init__(self, block=False, disable_timing=False):
        self.stream, self.place, self.ptr = Stream.null, 0, next(self._numbers)
        self._all[self.ptr] = self

    def record(self, stream=None):
        self.stream = get_current_stream() if stream is None else stream
        times = self.times = []
        self.stream.enqueue(lambda: times.append(time.perf_counter()))
        self.place = self.stream._enqueued

    def time(self):
        return self.times[0]

    def query(self):
        """Return the code of cudaEventQuery; each query lets the stream run one task."""
        self.stream.step()
        if faults.broken:
            return ILLEGAL_ADDRESS
        return SUCCESS if self.stream._done >= self.place else NOT_READY

    @property
    def done(self):
        return self.query() == SUCCESS

    def synchronize(self):
        self.stream.advance(self.place)
