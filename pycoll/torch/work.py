"""Collectives in flight: `Work` objects, which progress in the background as long as nobody waits for them.

A future may be waited for where Python cannot advance anything: DistributedDataParallel does so in C++.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
from mpi4py import MPI
from torch._C._distributed_c10d import Work as TorchWork

from pycoll import core
from pycoll.base.errors import CollectiveInterrupted, CollectiveTimeout
from pycoll.runtime.progress import lock, until
from pycoll.runtime.progress_thread import unwatch, watch, watched


class MessageRequest:
    """A point-to-point message in flight, with the methods of a request for a collective."""

    def __init__(self, request: MPI.Request, name: str, peer: int, seconds: float) -> None:
        self.source = peer
        self._request, self._name, self._status = request, name, MPI.Status()
        self.set_timeout(seconds)

    def set_timeout(self, seconds: float) -> None:
        """Limit the time until the message has been sent or received."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def Test(self) -> bool:
        """Test whether the message has been sent or received."""
        if self._request.Test(self._status):
            self.source = self._status.source if self.source == MPI.ANY_SOURCE else self.source
            return True
        if time.monotonic() > self._deadline:
            _unfinished.append(self)
            raise CollectiveTimeout(f"{self._name} did not finish within its timeout of {self._seconds:g} s")
        return False

    def Wait(self) -> None:
        """Wait until the message has been sent or received."""
        until(self.Test, self._name)


_unfinished: list[MessageRequest] = []  # MPI may still access their memory


class All:
    """Several requests as one."""

    def __init__(self, requests: Sequence[Any]) -> None:
        self._requests = list(requests)

    def set_timeout(self, seconds: float) -> None:
        """Limit the time until all are complete."""
        for request in self._requests:
            request.set_timeout(seconds)

    @property
    def polled(self) -> bool:
        """Whether one of them moves only when it is tested."""
        return any(map(polled, self._requests))

    @property
    def position(self) -> Any:
        """Their positions, for comparison."""
        return [position(request) for request in self._requests]

    def Test(self) -> bool:
        """Test whether all are complete."""
        self._requests = [request for request in self._requests if not request.Test()]
        return not self._requests

    def Wait(self) -> None:
        """Wait until all are complete."""
        for request in self._requests:
            request.Wait()


def polled(request: Any) -> bool:
    """Whether a request moves only when it is tested, as long as nobody waits for it."""
    return not isinstance(request, core.RunInFlight) and getattr(request, "polled", True)


def position(request: Any) -> Any:
    """The position of a request, for comparison; None if it is not known."""
    return getattr(request, "position", None)


def all_tensors(given: Any) -> list[torch.Tensor]:
    """The tensors in nested lists."""
    return [given] if isinstance(given, torch.Tensor) else [tensor for each in given for tensor in all_tensors(each)]


class Futures:
    """Sets futures in the order in which they were requested.

    Callbacks may start collectives, and all ranks must start them in the same order.  A callback may wait for a work
    that it has started: the futures of such works are set by a thread of their own, one for each level of nesting.
    """

    def __init__(self) -> None:
        self._queues: dict[int, SimpleQueue[Work | None]] = {}

    def add(self, work: Work, level: int) -> None:
        """Set the future of a work when it is complete."""
        if level not in self._queues:
            queue = self._queues[level] = SimpleQueue()
            threading.Thread(target=_set_futures, args=(queue, level), name="pycoll.torch future", daemon=True).start()
        self._queues[level].put(work)

    def close(self) -> None:
        """End the threads when they have set all futures."""
        for queue in self._queues.values():
            queue.put(None)
        self._queues = {}


def _set_futures(queue: SimpleQueue[Work | None], level: int) -> None:
    _here.level = level + 1
    while work := queue.get():
        work.set_future()
        del work  # and its tensors


class _Here(threading.local):
    level = 0  # of the works which this thread starts


_here = _Here()


class Work(TorchWork):
    """What torch.distributed returns for a collective or a message.

    Each is advanced by one thread: that in the background while it is watched, or the one that takes it from there.

    Parameters
    ----------
    request : object
        The request, with the methods `Test` and `Wait`.
    tensors : sequence of torch.Tensor or of lists of them
        The result of the future, where they are one list.
    after : sequence of callable
        What remains to be done when the data has arrived.
    futures : Futures
        What sets the futures of its group.
    """

    often = True

    def __init__(
        self, request: Any, tensors: Sequence[Any], after: Sequence[Callable[[], object]], futures: Futures
    ) -> None:
        super().__init__()
        self.futures, self._level = futures, _here.level
        self._request, self._tensors, self._after = request, list(tensors), after
        self._future: Any = None
        self._inner: Any = None  # which this rank sets
        self._error: BaseException | None = None
        self._done = self._awaited = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete, and raise its error."""
        self._awaited = True
        if not self._done:
            if timeout and timeout.total_seconds() > 0:
                self._request.set_timeout(timeout.total_seconds())
            if unwatch(self):
                self.finish()
            else:
                with _completed:
                    _completed.wait_for(lambda: self._done)
        if self._error is not None:
            raise self._error
        return True

    def finish(self) -> None:
        """Wait in this thread, which has taken it."""
        try:
            self._request.Wait()
        except BaseException as error:
            if not isinstance(error, Exception):  # of a signal handler
                self._error = CollectiveInterrupted(f"the work was interrupted by {error!r}")
                raise
            self._error = error
        finally:
            self.complete()

    @property
    def polled(self) -> bool:
        """Whether it moves only when it is advanced."""
        return polled(self._request)

    @property
    def position(self) -> Any:
        """Its position, for comparison."""
        return position(self._request)

    def advance_in_background(self) -> None:
        """Complete it if its data has arrived."""
        with lock:
            complete = self in watched and self._poll() and unwatch(self)
        if complete:
            self.complete()

    def _poll(self) -> bool:
        """Advance it; return whether it is complete."""
        try:
            return bool(self._request.Test())
        except Exception as error:
            self._error = error
            return True

    def complete(self) -> None:
        """Do what remains to be done, and wake those that wait."""
        try:
            if self._error is None:
                for action in self._after:
                    action()
        except Exception as error:
            self._error = error
        self._after = ()
        if self not in _in_flight:  # no other thread knows it
            self._done = True
            return
        with _completed:
            self._done = True
            _in_flight.discard(self)
            _completed.notify_all()

    def set_future(self) -> None:
        """Wait until another thread has completed it, and set the future, which may call back."""
        with _completed:
            _completed.wait_for(lambda: self._done)
        if self._error is not None:
            self._inner.set_exception(self._error)
        else:
            self._inner.set_result(self.result())

    def get_future(self) -> Any:
        """Return the future of the result, a list of tensors.

        C++ does not see an exception that Python has set in a future, but one that a callback has raised.
        """
        if _callbacks_of.ordered:
            with contextlib.suppress(Exception):  # the future has the error
                self.wait()
        with _completed:
            known = self._future is not None
            if not known:
                self._inner = torch.futures.Future(devices=self._gpus())
                self._future = self._inner.then(torch.futures.Future.value)
        if not known:
            if self._awaited:  # on all ranks, since they run the same program
                self.set_future()
            elif isinstance(self._request, MessageRequest):  # messages may arrive in any order
                alone = Futures()
                alone.add(self, self._level)
                alone.close()
            else:
                self.futures.add(self, self._level)
        return self._future

    def _gpus(self) -> list[torch.device]:
        return sorted({tensor.device for tensor in all_tensors(self._tensors) if tensor.is_cuda}, key=str)

    def get_future_result(self) -> Any:
        """Return a future that is set when the work is complete."""
        return self.get_future()

    def is_completed(self) -> bool:
        """Whether it is complete."""
        return self._done

    def is_success(self) -> bool:
        """Whether it is complete without an error."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """Return its error, if there is one."""
        return self._error

    def result(self) -> list[Any]:
        """Return the tensors of the result."""
        return all_tensors(self._tensors)

    def synchronize(self) -> None:
        """Wait until it is complete."""
        self.wait()

    def source_rank(self) -> int:
        """Return the rank that sent the message."""
        return int(self._request.source)

    _source_rank = source_rank


class _Callbacks(threading.local):
    """Whether this thread runs the callbacks of its futures in order."""

    ordered = False  # inside `get_future`, in the order of the calls


_callbacks_of = _Callbacks()


@contextlib.contextmanager
def ordered_callbacks() -> Iterator[None]:
    """In a `with` block, let `get_future` wait, so that callbacks run in this thread and in the order of the calls."""
    before, _callbacks_of.ordered = _callbacks_of.ordered, True
    try:
        yield
    finally:
        _callbacks_of.ordered = before


def leave(work: Work) -> None:
    """Let the thread in the background advance a work until somebody waits for it."""
    with _completed:
        _in_flight.add(work)
    watch(work)


def drain(futures: Futures) -> None:
    """Wait until all works in flight of a group are complete."""
    with _completed:
        works = [work for work in _in_flight if work.futures is futures]
    for work in works:
        with contextlib.suppress(Exception):  # its caller gets it
            work.wait()


_in_flight: set[Work] = set()  # those that nobody waited for at once
_completed = threading.Condition()  # its lock guards them
