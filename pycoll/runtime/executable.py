"""Executables: programs bound to addresses, each step a call without arguments.

An executable knows the memory of the caller by address, so it keeps no array alive.  It runs only in calls with arrays
of exactly these addresses, lengths and dtypes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from mpi4py import MPI

from ..base.errors import with_hint
from ..compiler.program import Finish, Program, Step, Wait
from .recording.steps import RECORDING, Tracer

if TYPE_CHECKING:
    from .plan import Plan

Calls = list[Callable[[], object]]


class Awaited(Protocol):
    """Work on a GPU that can be waited for like a request."""

    def Test(self) -> bool:
        """Whether it is complete."""

    def Wait(self) -> None:
        """Wait until it is complete."""


class Executable:
    """A program bound to addresses, with its scratch."""

    def __init__(
        self,
        program: Program,
        calls: Calls,
        requests: list[Any],
        scratch: Any,
        marks: Mapping[int, Awaited] | None = None,
        tag: list[int] | None = None,
    ) -> None:
        self.program, self.calls, self.requests, self.scratch = program, calls, requests, scratch
        self.marks = marks  # of GPU steps that are waited for
        self.tag = [] if tag is None else tag  # of its messages, if each run has a different one
        self.tracer: Tracer | None = None  # records its runs
        self.known: list[tuple[Plan, Any]] = []  # the plans that refer to it, with their keys
        self.leads = False  # what follows it in a task is bound when it is complete
        self.failed = False  # a run ended early, so that messages may be pending
        self.interrupted = 0  # the number of runs that raised an exception after they had begun

    @cached_property
    def waits(self) -> list[Any]:
        """The request or mark that each call waits for, or None."""
        waits: list[Any] = [self._awaited(step) for step in self.program.steps]
        if self.tracer:
            waits = self.tracer.waits(waits)
        return waits + [None] * (len(self.calls) - len(waits))

    def _awaited(self, step: Step) -> MPI.Prequest | Awaited | None:
        if type(step) is Wait:
            request: MPI.Prequest = self.requests[step.message]
            return request
        return self.marks[step.step] if self.marks and type(step) is Finish else None

    def record(self, tracer: Tracer) -> None:
        """Record its runs from now on."""
        self.tracer, self.calls = tracer, tracer.calls(self.calls)

    def run(self, calls: Calls | None = None) -> None:
        """Make all calls, or these; an error is raised after the last call, because other ranks depend on its messages.

        Python handles signals between two calls, never between taking a call from the list and making it.  An exception
        of a signal handler is also raised after the last call, as after a native collective.  If a call could not
        complete, the calls after it are not made, and `failed` is set.
        """
        rest = iter(self.calls if calls is None else calls)
        call = None
        try:
            for call in rest:
                call()
        except BaseException as error:
            self._finish(rest, call, error)

    def _finish(self, rest: Iterator[Callable[[], object]], call: Any, error: BaseException) -> None:
        self.interrupted += 1
        self.failed = True  # unless all calls are made
        caught, repeated = error, None
        while True:
            if _broke_off(call, caught):
                if call is repeated or not _is_repeatable(call, caught):
                    break
                rest, repeated = chain([call], rest), call
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
        """Free the MPI requests."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.Free()


class Deferred(ABC):
    """A part of a task that is bound when it is reached; again, if a signal handler raises an exception meanwhile."""

    program = Program([], [], 0)
    requests: tuple[Any, ...] = ()

    @abstractmethod
    def bound(self) -> Executable:
        """Return the executable."""


def has_run(error: BaseException) -> bool:
    """Whether an executable has raised this error, which it does after its last call, or because it has failed."""
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code is Executable._finish.__code__:
            return True
        trace = trace.tb_next
    return False


class Begun(ABC):
    """Looks like a persistent request, but begins a new request each time it is started."""

    _request: MPI.Request = MPI.REQUEST_NULL

    @abstractmethod
    def Start(self) -> None:
        """Start it."""

    def Test(self) -> bool:
        """Whether it is complete."""
        return self._request.Test()

    def Wait(self) -> bool:
        """Wait until it is complete."""
        return self._request.Wait()

    def Free(self) -> None:  # noqa: B027
        """Do nothing: the request frees itself when it is complete."""


class TaggedMessage(Begun):
    """A message that has a different tag each time it is started."""

    def __init__(self, begin: Callable[..., MPI.Request], memory: list[Any], peer: int, tag: list[int]) -> None:
        self._begin, self._memory, self._peer, self._tag = begin, memory, peer, tag

    def Start(self) -> None:
        """Start it."""
        self._request = self._begin(self._memory, self._peer, self._tag[0])


# The code of calls that are made once more if a signal handler has ended them, unless it ends them again.
REPEATABLE: set[CodeType] = set()


def _is_repeatable(call: Any, error: BaseException) -> bool:
    return getattr(call, "__code__", None) in REPEATABLE and not isinstance(error, MPI.Exception)


def _broke_off(call: Any, error: BaseException) -> bool:
    """Whether a call ended in the middle with this error, which was caught where the call was made.

    Arithmetic functions complete before they raise an error.  A signal handler runs after a call, unless the call is
    Python code.
    """
    if isinstance(error, ArithmeticError | Warning):
        return False
    inner = error.__traceback__ and error.__traceback__.tb_next
    code = getattr(getattr(call, "func", call), "__code__", None)
    if code in RECORDING:
        return False
    return isinstance(error, MPI.Exception) or (inner is not None and inner.tb_frame.f_code is code)


class Runs(Protocol):
    """A part of a collective: an executable, or a plan and its buffers."""

    @property
    def failed(self) -> bool:
        """Whether it ended early, so that messages may be pending."""

    def run(self) -> None:
        """Run it."""


def run_in_turn(parts: Iterable[Runs], broken: Callable[[BaseException, Any], None]) -> None:
    """Run the parts of one collective; an exception of a signal handler is raised after the last part.

    If the collective ends early, `broken` is called with the error and the part that has started last.
    """
    delayed: BaseException | None = None
    part, ended = None, False
    try:
        for part in parts:
            try:
                part.run()
            except BaseException as error:
                if part.failed:
                    raise
                delayed = delayed or error
        ended = True
    except BaseException as error:
        if part is not None and not ended:
            broken(error, part)
        raise
    if delayed:
        raise delayed


def freed_at_its_end(executable: Executable) -> Executable:
    """Append calls to the executable that free its requests."""
    executable.calls.extend(request.Free for request in executable.requests)
    return executable
