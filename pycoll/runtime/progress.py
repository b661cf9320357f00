"""Progress: collectives in flight move on while the program waits for one of them, tests one, or runs another.

Meanwhile, `pycoll.runtime.progress_thread` moves them on in the background.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from .. import core
from ..arguments.memory_kinds import HOST, Memory
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError, with_hint
from ..compiler.program import Collective, Message, Program, is_native
from .executable import Executable, PythonSteps
from .failures import UNDETECTED
from .interruptions import interruptions_delayed


class Abandoned(Protocol):
    """The part of a channel that a task uses when it fails."""

    mailboxes: core.Mailboxes | None

    def interrupted(self, what: str, error: BaseException, *kept: object) -> BaseException:
        """Make the communicator unusable because `what` ended early, and return the error to raise."""

    def abandon(self, reason: RuntimeError, *kept: object) -> None:
        """Make the communicator unusable, because messages may still be pending."""

    def failure_on_host(self, *ranks: int) -> RuntimeError | None:
        """Make the communicator unusable if one of these ranks of this host, or any, has ended; return the error."""


NOTHING = PythonSteps(Program([], [], 0), [])
"""The part of a task before the first."""


class InFlight(ABC):
    """What tasks have in common: a collective in flight, and how a program waits for it."""

    # in the class, so that a task is created faster
    error: BaseException | None = None
    done = False
    awaited = False  # by a thread of the program, which then advances it
    owner: object = None  # a request that lives until the collective is complete
    deadline = 0.0  # of the wait; 0 means that `settings.TIMEOUT` holds
    _limit = 0.0  # seconds from `set_timeout` to the deadline

    name: str  # in error messages
    channel: Abandoned
    memory: Memory = HOST

    @property
    @abstractmethod
    def executable(self) -> Executable | None:
        """What runs now; None before the beginning and after the end."""

    @property
    @abstractmethod
    def inside(self) -> bool:
        """Whether it is in the middle of a step, which itself lets the other tasks progress."""

    @property
    def elsewhere(self) -> bool:
        """Whether it must be advanced in another thread."""
        return False

    def set_device(self) -> None:  # noqa: B027 - nothing to do, if any thread may
        """Let this thread advance it from now on."""

    @abstractmethod
    def begin(self) -> None:
        """Start, and run all steps that need no waiting."""

    @abstractmethod
    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""

    @abstractmethod
    def end(self) -> None:
        """Note that it is complete."""

    @property
    def position(self) -> tuple[int, int, int]:
        """Its position, for comparison; always a new one in a native collective, whose progress is unknown."""
        part = self.executable
        if part is None:
            return id(self), 0, 0
        return id(self), id(part), time.monotonic_ns() if is_native(part.program) else part.position

    def set_timeout(self, seconds: float) -> None:
        """Let `poll` and `finish` raise CollectiveTimeout if the task is not complete in this time from now."""
        self._limit, self.deadline = seconds, time.monotonic() + seconds

    def fail(self, error: BaseException) -> None:
        """End with an error, which is raised by the call that waits for the task."""
        error = with_hint(error)
        # a mismatch is raised on all ranks, after the last message
        if self.executable is not NOTHING and not isinstance(error, MismatchError):
            error = self.channel.interrupted(self.name, error, self, self.executable)
        self.error = self.error or error
        self.end()

    def poll(self) -> bool:
        """Advance all tasks; return whether this one is complete."""
        if not self.done:
            self.set_device()
            with _delays():
                progress()
            if self.deadline and not self.done and time.monotonic() > self.deadline:
                self.give_up()
        return self.done

    def run(self) -> None:
        """Start and finish, as a blocking call; an exception that ends the wait makes the communicator unusable."""
        self.awaited = True
        with interruptions_delayed():  # also while programs are bound between two messages
            try:
                self.begin()
                self._wait()
            except BaseException as error:
                if not self.done:
                    self.fail(error)
                raise

    def finish(self) -> None:
        """Start the task if it has not started, wait until it is complete, and raise its error.

        An exception of a signal handler is raised after completion, as by a call of MPI.  The second such exception
        ends the wait.
        """
        with interruptions_delayed():
            if self not in tasks and not self.done:  # in this order, because another thread may complete it
                self.begin()
            self._wait()

    def _wait(self) -> None:
        """Wait until it is complete, while all tasks progress."""
        with lock:  # another thread may be advancing it
            self.set_device()
            self.awaited = True
        deadline = self.deadline or (time.monotonic() + settings.TIMEOUT if settings.TIMEOUT else 0.0)
        try:
            while not self.done:
                if not (len(tasks) > 1 or deadline):
                    self.advance(wait=True)  # without the lock, so that other threads can run
                    break
                progress()
                if self.done:
                    break
                if deadline and time.monotonic() > deadline:
                    self.give_up()
                os.sched_yield()
        finally:
            self.awaited = False
        self.raise_error()

    def raise_error(self) -> None:
        """Raise the error of the task, once; or the exception of a signal handler that came meanwhile."""
        if self.error:
            error, self.error = self.error, None
            raise error
        if self.channel.mailboxes:
            self.channel.mailboxes.raise_delayed()

    def give_up(self) -> None:
        """Raise CollectiveTimeout, and make the communicator unusable."""
        seconds = self._limit or settings.TIMEOUT
        problem = f"{self.name} did not finish within its timeout of {seconds:g} s: {self._state()}{UNDETECTED}"
        self.channel.abandon(CollectiveTimeout(problem), self, self.executable)
        self.end()
        raise CollectiveTimeout(problem)

    def _state(self) -> str:
        if self.executable is None:
            return "it has not started"
        program = self.executable.program
        if program.steps and type(program.steps[0]) is Collective:
            return "the native collective has not completed"
        open_ones = self.executable.open_messages()
        now = min((message.round for message in open_ones), default=0)
        waits = [message for message in open_ones if message.round == now]
        if not waits:
            return "it waits for the GPU"
        return f"in round {now + 1} it is waiting {_in_words(waits)}"


def _in_words(messages: list[Message]) -> str:
    """What a rank is waiting for, by the ranks that must act."""
    sends, receives = ({m.peer for m in messages if m.outgoing is outgoing} for outgoing in (True, False))
    wants = []
    for peer in sorted(sends | receives):
        acts = ["receive a message from it"] * (peer in sends) + ["send a message to it"] * (peer in receives)
        if len(acts) == 2:
            acts[1] = "send one to it"
        wants.append(f"for rank {peer} to {' and to '.join(acts)}")
    return ", ".join(wants)


LONGEST = 1e-3  # seconds between two looks at the tasks in flight in the background, if these need not be often
BETWEEN_LOOKS = 0.2  # seconds between two looks at the processes of other ranks
tasks: list[InFlight] = []
lock = threading.RLock()
mover = core.Mover(LONGEST, LONGEST)
"""Moves runs in flight on without the interpreter lock; `mover.others` counts what is watched besides."""


def progress() -> None:
    """Advance all tasks in flight by the steps that need no waiting."""
    if tasks:
        with lock:
            for task in list(tasks):
                if not (task.inside or task.elsewhere):
                    task.advance()
            _look_at_peers()


def _delays() -> contextlib.AbstractContextManager[None]:
    """Delays exceptions of signal handlers if there are tasks that they would break off."""
    return interruptions_delayed() if mover.others else contextlib.nullcontext()


def _look_at_peers() -> None:
    """Now and then, end the tasks that wait for ranks of this host which have ended."""
    if (now := time.monotonic()) < _next_look[0]:
        return
    _next_look[0] = now + BETWEEN_LOOKS
    for channel in {id(task.channel): task.channel for task in list(tasks)}.values():
        if failure := channel.failure_on_host():
            for task in [task for task in list(tasks) if task.channel is channel]:
                task.error = task.error or failure
                task.end()


_next_look = [0.0]  # at the processes of other ranks


def until(
    done: Callable[[], object], what: str, state: Callable[[], str] | None = None, concerned: Iterable[InFlight] = ()
) -> None:
    """Wait until `done` returns true, while all tasks progress.

    CollectiveTimeout names the tasks in `concerned`, or else says that `what` did not finish, followed by `state()`.
    """
    deadline = time.monotonic() + settings.TIMEOUT if settings.TIMEOUT else None
    try:
        while not done():
            progress()
            if deadline and time.monotonic() > deadline:
                for task in concerned:
                    try:
                        task.give_up()
                    except CollectiveTimeout as error:
                        task.error = error  # for the call that waits for the task
                        raise
                raise CollectiveTimeout(
                    f"{what} did not finish in {settings.TIMEOUT:g} s" + (f": {state()}" if state else "") + UNDETECTED
                )
            os.sched_yield()
    except BaseException:
        _unfinished.append(done)
        raise


_unfinished: list[Callable[[], object]] = []  # they hold requests, whose memory MPI may still access


def drain(channel: Abandoned | None) -> None:
    """Wait for the collectives in flight on a channel before it is freed."""
    if tasks:
        until(
            lambda: all(task.channel is not channel for task in tasks),
            "the collectives in flight on the communicator",
            None,
            [task for task in tasks if task.channel is channel],
        )
