"""Nonblocking and persistent collectives: requests, and what waits for several of them.

A request is no `MPI.Request`: MPI would take it for one that is complete, so that passing one to MPI is an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from mpi4py import MPI

from . import engine, progress, settings
from .prepare import Prepared, apart, prepare
from .progress import Flight, background, flights


class Request:
    """A collective under way.

    It goes on in `Test` and `Wait` of any request and in any other call of pycoll's.  The buffers must stay as they
    are until it is complete.
    """

    def __init__(self, flight: Flight, result: Any) -> None:
        self._flight, self._result = flight, result

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether it is complete; raises what went wrong in it.  `status` is there for mpi4py's sake."""
        if not self._flight.done:
            progress.progress()
        if self._flight.done:
            self._flight.raise_error()
        return self._flight.done

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until it is complete; True."""
        self._flight.arrive()
        return True

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Whether it is complete, and the collective's result if it is."""
        done = self.Test()
        return done, self._result if done else None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until it is complete; the collective's result."""
        self.Wait()
        return self._result

    def forget_result(self) -> None:
        """Let `wait` return None, as mpi4py's methods do."""
        self._result = None


class Persistent(Flight):
    """A collective on fixed buffers, to be started many times; a context manager that frees it at its end.

    Each `Start` needs a `Wait`, or a `Test` that says True.  Started ones complete in any order.
    """

    def __init__(self, prepared: Prepared, result: Any) -> None:
        super().__init__((), prepared.name, prepared.channel)
        self.done, self._fresh = True, False  # fresh: started by `Start`, and not gone on since
        self._prepared, self._result = prepared, result
        opening = prepared.flight(prepared.openings())
        opening.take_off()
        opening.arrive()
        self._fixed: engine.Bound | None = prepared.bound()
        waits = self._fixed.waits
        self._first = next((at for at, request in enumerate(waits) if request is not None), len(waits))
        self._starting, self._ending = self._fixed.calls[: self._first], self._fixed.calls[self._first :]
        self._quick = not (prepared.arguments.before or prepared.arguments.after or settings.TIMEOUT)

    def Start(self) -> None:
        """Start it; RuntimeError if it is under way, or freed."""
        if self.done and self._quick:
            self.done, self._fresh = False, True
            for call in self._starting:
                call()
            flights.append(self)
        else:
            self._start_anew()

    def _start_anew(self) -> None:
        if not self.done or self._fixed is None:
            raise RuntimeError(f"Start: {self.name} is {'freed' if self.done else 'still under way'}")
        self.done = False
        self._parts = self._prepared.body(self._fixed)
        self.take_off()

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until it is complete; True."""
        if self._fresh and len(flights) == 1 and not background:
            calls = iter(self._ending)
            try:
                for call in calls:
                    call()
            except (ArithmeticError, Warning):
                engine.finish(calls)
                raise
            finally:
                flights.clear()
                self.done, self._fresh = True, False
            return True
        self.arrive()
        return True

    def advance(self) -> bool:
        """Go on as far as that needs no waiting; whether it is at its end."""
        if self._fresh:
            self._fresh, self._bound, self._at = False, self._fixed, self._first
        return super().advance()

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether it is complete, or not started; raises what went wrong in it."""
        if not self.done:
            progress.progress()
        if self.done:
            self.raise_error()
        return self.done

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Whether it is complete, and the collective's result if it is."""
        done = self.Test()
        return done, self._result if done else None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until it is complete; the collective's result."""
        self.Wait()
        return self._result

    def forget_result(self) -> None:
        """Let `wait` return None, as mpi4py's methods do."""
        self._result = None

    def Free(self) -> None:
        """Give its requests back to MPI; RuntimeError if it is under way."""
        if not self.done:
            raise RuntimeError(f"Free: {self.name} is still under way")
        if self._fixed:
            self._fixed.free()
            self._fixed, self._quick = None, False

    def __enter__(self) -> Persistent:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.Wait()
        if self.done:
            self.Free()


def waitall(requests: Sequence[Request | Persistent | MPI.Request]) -> list:
    """Wait for all of them, pycoll's and MPI's mixed; the results, as each one's `wait` gives them."""
    results: dict[int, Any] = {}
    progress.until(lambda: _test_each(requests, results))
    return [results[i] for i in range(len(requests))]


def waitany(requests: Sequence[Request | Persistent | MPI.Request]) -> tuple[int, Any]:
    """Wait for one of them, pycoll's and MPI's mixed; its index, and its result as its `wait` gives it.

    Without requests the index is MPI.UNDEFINED.
    """
    results: dict[int, Any] = {}
    progress.until(lambda: not requests or _test_each(requests, results, enough=1) or results)
    return next(iter(results.items()), (MPI.UNDEFINED, None))


def testall(requests: Sequence[Request | Persistent | MPI.Request]) -> tuple[bool, list | None]:
    """Whether all of them are complete, pycoll's and MPI's mixed; the results too if they are."""
    results: dict[int, Any] = {}
    progress.progress()
    pending = [request for request in requests if not isinstance(request, MPI.Request)]
    if not all(request.Test() for request in pending) or not _all_complete(requests):
        return False, None
    _test_each(requests, results)
    return True, [results[i] for i in range(len(requests))]


def _all_complete(requests: Sequence[Request | Persistent | MPI.Request]) -> bool:
    return all(request.Get_status() for request in requests if isinstance(request, MPI.Request))


def _test_each(requests: Sequence[Request | Persistent | MPI.Request], results: dict, enough: int = 0) -> bool:
    """Test those without a result, till there are enough; whether all have one."""
    for i, request in enumerate(requests):
        if i not in results and not (enough and len(results) >= enough):
            done, result = request.test()
            if done:
                results[i] = result
    return len(results) == len(requests)


def _channel(comm: MPI.Intracomm) -> engine.Channel:
    engine.check_communicator(comm)
    channel = engine.attached(comm)
    if channel is None:
        raise RuntimeError(
            "this communicator has no private duplicate yet, and a nonblocking call cannot make one: first call "
            "pycoll.attach(comm) or a blocking collective on all its ranks, or use pycoll.Comm(comm)"
        )
    return channel


def start(primitive: str, read: Any, comm: MPI.Intracomm | None = None, **given: Any) -> Request:
    """Start a collective that does not block; arguments as its blocking form has."""
    comm = MPI.COMM_WORLD if comm is None else comm
    prepared = _prepared(primitive, read, comm, _channel(comm), **given)
    flight = prepared.flight(prepared.parts())
    flight.take_off()
    return Request(flight, prepared.arguments.result)


def initialize(primitive: str, read: Any, comm: MPI.Intracomm | None = None, **given: Any) -> Persistent:
    """Make a persistent collective; all ranks of the communicator call this together."""
    comm = MPI.COMM_WORLD if comm is None else comm
    prepared = _prepared(primitive, read, comm, engine.attach(comm), **given)
    return Persistent(prepared, prepared.arguments.result)


def _prepared(
    primitive: str,
    read: Any,
    comm: MPI.Intracomm,
    channel: engine.Channel,
    sendbuf: Any = None,
    recvbuf: Any = None,
    op: Any = None,
    root: int = 0,
    recvcounts: Any = None,
    algorithm: str | None = None,
    **buffer: Any,
) -> Prepared:
    recvbuf = buffer.get("buf", recvbuf)
    return prepare(primitive, sendbuf, recvbuf, op, root, comm, algorithm, recvcounts, read, channel, apart(channel))


def derived(blocking: Callable[..., Any], begin: Callable[..., Any], name: str, kind: str) -> Callable[..., Any]:
    """The form of a blocking function that hands its arguments, by name, to `begin`."""
    signature = inspect.signature(blocking)
    defaults = {key: p.default for key, p in signature.parameters.items() if p.default is not p.empty}
    positional = [key for key, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(blocking)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = defaults | dict(zip(positional, args)) | kwargs
        if len(given) != len(signature.parameters) or len(args) > len(positional):
            signature.bind(*args, **kwargs)  # which says what is wrong
        return begin(**given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{kind} `{blocking.__name__}`, with its arguments and errors."
    return function
