"""Collectives in flight: `Work` objects, and the thread that advances those that nobody waits for."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

import torch
from mpi4py import MPI
from torch._C._distributed_c10d import Work as TorchWork

from pycoll import core
from pycoll.base.errors import CollectiveInterrupted, CollectiveTimeout
from pycoll.runtime.progress import until
from pycoll.runtime.progress_thread import INTERVAL

LONGEST = 1e-3  # the longest time between two checks while other threads compute, in seconds
IDLE = 50e-6  # the longest time if all others wait


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
            set_timeout(request, seconds)

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


def set_timeout(request: Any, seconds: float) -> None:
    """Let the request raise CollectiveTimeout if it is not complete in this time from now."""
    getattr(request, "task", request).set_timeout(seconds)


def position(request: Any) -> Any:
    """The position of a request, for comparison; None if it is not known."""
    return getattr(getattr(request, "task", request), "position", None)


def _gpus(tensors: Any) -> set[torch.device]:
    """The GPUs that hold these tensors, in nested lists."""
    if isinstance(tensors, torch.Tensor):
        return {tensors.device} if tensors.is_cuda else set()
    return set().union(*map(_gpus, tensors))


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


_here = threading.local()  # `level`: that of the works which this thread starts


class Work(TorchWork):
    """What torch.distributed returns for a collective or a message.

    Parameters
    ----------
    request : object
        The request, with the methods `Test` and `Wait`.
    tensors : sequence of torch.Tensor
        The result of the future.
    after : sequence of callable
        What remains to be done when the data has arrived.
    futures : Futures
        What sets the futures of its group.
    """

    def __init__(
        self, request: Any, tensors: Sequence[Any], after: Sequence[Callable[[], object]], futures: Futures
    ) -> None:
        super().__init__()
        self.futures, self._level = futures, getattr(_here, "level", 0)
        self._request, self._tensors, self._after = request, list(tensors), after
        self._future: Any = None
        self._error: BaseException | None = None
        self._done = self._awaited = False
        self.driven = False  # a thread has taken it, and waits for it or completes it

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete, and raise its error."""
        self._awaited = True
        if not self._done:
            if timeout and timeout.total_seconds() > 0:
                set_timeout(self._request, timeout.total_seconds())
            if engine.take(self):
                self.finish()
            else:
                with _completed:
                    _completed.wait_for(lambda: self._done)
        if self._error:
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
    def position(self) -> Any:
        """Its position, for comparison."""
        return position(self._request)

    def poll(self) -> bool:
        """Advance it; return whether it is complete."""
        try:
            return bool(self._request.Test())
        except Exception as error:
            self._error = error
            return True

    def complete(self) -> None:
        """Do what remains to be done, and wake those that wait."""
        try:
            if not self._error:
                for action in self._after:
                    action()
        except Exception as error:
            self._error = error
        self._after = ()
        with _completed:
            self._done = True
            _completed.notify_all()

    def set_future(self) -> None:
        """Wait until another thread has completed it, and set the future, which may call back."""
        with _completed:
            _completed.wait_for(lambda: self._done)
        if self._error:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._tensors)

    def get_future(self) -> Any:
        """Return the future of the result, a list of tensors."""
        if _callbacks_of.ordered:
            with contextlib.suppress(Exception):  # the future has the error
                self.wait()
        with _completed:
            known = self._future is not None
            if not known:
                self._future = torch.futures.Future(devices=sorted(_gpus(self._tensors), key=str))
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
        return self._tensors

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


class Others:
    """Tells whether other threads of the process compute, so that frequent checks would disturb them.

    If they all wait, as at the end of a backward pass, checks should be frequent: Open MPI sends long messages over TCP
    only in the calls of the sender.
    """

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0

    def compute(self) -> bool:
        """Whether they have used more than a tenth of a core since the last call."""
        wall, cpu = time.perf_counter(), time.process_time() - time.thread_time()
        busy = cpu - self._cpu > (wall - self._wall) / 10
        self._wall, self._cpu = wall, cpu
        return busy


class Engine:
    """Advances works in a thread of its own, as long as nobody waits for them.

    A future may be waited for where Python cannot advance anything: DistributedDataParallel does so in C++.  Each work
    is advanced by one thread at a time: the thread of the engine, or after `take` the one that waits for it.
    """

    def __init__(self) -> None:
        self._added: deque[Work] = deque()
        self._works: list[Work] = []
        self._taken: WeakSet[Work] = WeakSet()
        self._lock = threading.Lock()  # held while works are advanced
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False

    def add(self, work: Work) -> None:
        """Let the thread advance this work."""
        self._added.append(work)
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pycoll.torch", daemon=True)
            self._thread.start()
            atexit.register(self._stop)

    def take(self, work: Work) -> bool:
        """Take a work away from the thread; False if it is complete, or another thread has taken it."""
        if work.driven:
            return False
        with self._lock:
            taken, work.driven = not work.driven, True
            self._taken.add(work)
        return taken

    def drain(self, futures: Futures) -> None:
        """Wait until all works of a group that were added are complete."""
        with self._lock:
            works = [work for work in [*self._added, *self._works, *self._taken] if work.futures is futures]
        for work in works:
            try:
                work.wait()
            except Exception:  # its caller gets it
                continue

    def _stop(self) -> None:
        """End the thread, before MPI is finalized."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        rest = INTERVAL
        before: list[Any] = []
        others, mover = Others(), core.Mover(INTERVAL, LONGEST)
        while not self._ended:
            self._wake.wait()
            with self._lock:
                done = self._sweep()
                positions = [work.position for work in self._works]
            for work in done:
                work.complete()
            longest = LONGEST if others.compute() else IDLE
            rest = INTERVAL if positions != before else min(2 * rest, longest)
            before = positions
            if not mover.move(rest):
                time.sleep(rest)

    def _sweep(self) -> list[Work]:
        """Advance all works; return those that are complete, which this thread has taken."""
        self._works = [work for work in self._works if not work.driven]
        while self._added:
            self._works.append(self._added.popleft())
        done = [work for work in self._works if not work.driven and work.poll()]
        for work in done:
            work.driven = True
        if not (self._works or self._added):
            self._wake.clear()
            if self._added:  # since then
                self._wake.set()
        return done


engine = Engine()
_completed = threading.Condition()
