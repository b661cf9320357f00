"""Executables: programs with the buffers of one call, which run to the end, or bit by bit while other work goes on."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from mpi4py import MPI

from ..compiler.program import BLOCKING, Finish, Message, Program, Start, Step, Wait
from .recording.steps import Tracer

Calls = list[Callable[[], object]]


class Awaited(Protocol):
    """A message, or work on a GPU, that can be waited for like a request of MPI."""

    def Test(self) -> bool:
        """Whether it is complete."""

    def Wait(self) -> object:
        """Wait until it is complete."""


class Executable(Protocol):
    """A program with the buffers of one call.  It knows them by address, so it keeps no array of the caller alive.

    It is a run of the compiled core (`pycoll.core.messages`), or runs in Python (`PythonSteps`).
    """

    tag: int  # of its messages, the next time that it begins
    error: Exception | None  # of arithmetic: other ranks wait for the next steps, so it is raised last

    @property
    def program(self) -> Program:
        """The program."""

    @property
    def complete(self) -> bool:
        """Whether it has run to its end."""

    @property
    def broken_off(self) -> bool:
        """Whether it ended in the middle of a step, so that it cannot continue."""

    @property
    def position(self) -> int:
        """The number of the next step."""

    def begin(self) -> None:
        """Go to the first step."""

    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""

    def open_messages(self) -> list[Message]:
        """The messages that were started and are not complete."""

    def free(self) -> None:
        """Free the requests of MPI that it holds."""


class PythonSteps:
    """An executable of calls without arguments, one for each step and more at the end.

    `waits` has the message or the mark that a call waits for, or None, for each step.
    """

    def __init__(
        self,
        program: Program,
        calls: Calls,
        requests: list[Any] | None = None,
        marks: Mapping[int, Awaited] | None = None,
        tags: list[int] | None = None,
        kept: Any = None,
    ) -> None:
        self.program = program
        self.error: Exception | None = None
        self._tags = tags or [BLOCKING]  # one, which its messages read when they start
        self.calls, self.requests, self.marks, self._kept = calls, requests or [], marks or {}, kept
        self.waits = [self._awaited(step) for step in program.steps]
        self.waits += [None] * (len(calls) - len(self.waits))
        self.position, self.broken_off = len(calls), False

    @property
    def tag(self) -> int:
        """The tag of its messages."""
        return self._tags[0]

    @tag.setter
    def tag(self, tag: int) -> None:
        self._tags[0] = tag

    def _awaited(self, step: Step) -> Any:
        if type(step) is Wait:
            return self.requests[step.message]
        return self.marks.get(step.step) if type(step) is Finish else None

    def add(self, step: Step, call: Callable[[], object]) -> None:
        """Add a last step."""
        self.program = replace(self.program, steps=[*self.program.steps, step])
        self.calls, self.waits = [*self.calls, call], [*self.waits, None]
        self.position = len(self.calls)

    def record(self, tracer: Tracer) -> None:
        """Record its runs from now on."""
        self.calls, self.waits = tracer.calls(self.calls), tracer.waits(self.waits)

    @property
    def complete(self) -> bool:
        return self.position == len(self.calls)

    def begin(self) -> None:
        self.position, self.broken_off = 0, False

    def advance(self, wait: bool = False) -> bool:
        calls, waits = self.calls, self.waits
        while self.position < len(calls):
            if (awaited := waits[self.position]) is None:
                self.broken_off = True
                try:
                    calls[self.position]()
                except (ArithmeticError, Warning) as error:
                    self.error = self.error or error
                except BaseException as error:
                    if _came_after(calls[self.position], error):
                        self.position += 1
                        self.broken_off = False
                    raise
            elif wait:
                awaited.Wait()
            elif not awaited.Test():
                return False
            self.position += 1
            self.broken_off = False
        return True

    def open_messages(self) -> list[Message]:
        begun = {step.message for step in self.program.steps[: self.position + 1] if isinstance(step, Start | Wait)}
        messages = self.program.messages
        return [
            messages[number] for number in sorted(begun) if number < len(messages) and not self.requests[number].Test()
        ]

    def free(self) -> None:
        requests, self.requests = self.requests, []
        for request in requests:
            request.Free()


def _came_after(call: Any, error: BaseException) -> bool:
    """Whether a signal handler raised this error after a call, and not in the middle of it."""
    inner = error.__traceback__ and error.__traceback__.tb_next
    code = getattr(getattr(call, "func", call), "__code__", None)
    return inner is not None and inner.tb_frame.f_code is not code and not isinstance(error, MPI.Exception)


class Begun:
    """Looks like a persistent request, but begins a new request each time it is started."""

    def __init__(self, begin: Callable[[], MPI.Request]) -> None:
        self._begin = begin
        self._request: MPI.Request = MPI.REQUEST_NULL

    def Start(self) -> None:
        """Start it."""
        self._request = self._begin()

    def Test(self) -> bool:
        """Whether it is complete."""
        return self._request.Test()

    def Wait(self) -> bool:
        """Wait until it is complete."""
        return self._request.Wait()

    def Free(self) -> None:
        """Do nothing: the request frees itself when it is complete."""


def run_all(parts: Iterable[Executable]) -> BaseException | None:
    """Run the parts of one collective; return the first error that was raised by a part that is complete."""
    delayed: BaseException | None = None
    for part in parts:
        try:
            part.begin()
            part.advance(wait=True)
            delayed, part.error = delayed or part.error, None
        except BaseException as error:
            if not part.complete:
                raise
            delayed = delayed or error
    return delayed


# Requests of MPI that a program has dropped without freeing them.  The garbage collector may run in a thread that must
# not call MPI, or after MPI_Finalize: it only records them, and a later call of pycoll frees them.
_dropped: list[Executable] = []


def collect_later(owner: object, executable: Executable) -> weakref.finalize[..., object]:
    """Free the requests of an executable some time after its owner is collected.

    They must be inactive then: the code that starts them must keep a reference to the owner until they are complete.
    """
    finalizer = weakref.finalize(owner, _dropped.append, executable)
    finalizer.atexit = False
    return finalizer


def free_dropped() -> None:
    """Free the requests whose owners were collected."""
    with contextlib.suppress(IndexError):  # another thread may have taken the last one
        while _dropped:
            _dropped.pop().free()
