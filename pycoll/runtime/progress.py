"""Tasks: collectives in flight, each of which progresses as soon as the message that it waits for has arrived.

They progress while the program is in a call of pycoll: while it waits for one of them, tests one, or runs another
collective.  Otherwise a thread in the background moves them on every millisecond, or more often with `progress_thread`;
it needs MPI_THREAD_MULTIPLE.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol

from mpi4py import MPI

from .. import core
from ..arguments.memory_kinds import HOST, Memory
from ..base import settings
from ..base.errors import CollectiveTimeout, GPUError, MismatchError, with_hint
from ..base.numbers import check_real
from ..compiler.program import Collective, Message, Program, is_native
from .executable import Executable, PythonSteps
from .failures import UNDETECTED
from .interruptions import interruptions_delayed


class Abandoned(Protocol):
    """What a task needs of the channel of its communicator, which becomes unusable if the task ends early."""

    mailboxes: core.Mailboxes | None

    def interrupted(self, what: str, error: BaseException, *kept: object) -> BaseException:
        """Make the communicator unusable because `what` ended early, and return the error to raise."""

    def abandon(self, reason: RuntimeError, *kept: object) -> None:
        """Make the communicator unusable, because messages may still be pending."""

    def failure_on_host(self, *ranks: int) -> RuntimeError | None:
        """Make the communicator unusable if one of these ranks of this host, or any, has ended; return the error."""


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
        if self.executable is not _NOTHING and not isinstance(error, MismatchError):
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
        with _lock:  # another thread may be advancing it
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


class Task(InFlight):
    """A collective in flight: a sequence of parts, each an executable.

    `parts` returns an iterator over them each time that the task begins; it may compute between two parts, with the
    data received by the previous one.
    """

    _executable: Executable | None = None
    _working = False  # between two parts
    _thread = 0  # that advances it

    def __init__(
        self,
        parts: Callable[[], Iterable[Executable]],
        name: str,
        channel: Abandoned,
        memory: Memory = HOST,
    ) -> None:
        self.name, self.channel, self.memory = name, channel, memory
        self._make = parts
        self._parts: Iterator[Executable] = iter(())
        self._lock = threading.Lock()  # of the thread that advances it

    @property
    def executable(self) -> Executable | None:
        """The part that runs now; None before the beginning and after the end."""
        return self._executable

    @property
    def inside(self) -> bool:
        """Whether it is in the middle of a step, which itself lets the other tasks progress."""
        return self._lock.locked()

    @property
    def elsewhere(self) -> bool:
        """Whether it must be advanced in another thread."""
        return self._thread != threading.get_ident()

    def set_device(self) -> None:
        """Let this thread advance it from now on."""
        self._thread = threading.get_ident()

    @interruptions_delayed()
    def begin(self) -> None:
        """Start, and run all steps that need no waiting."""
        self.set_device()
        self.done, self._context = False, contextvars.copy_context()
        self._parts, self._executable = iter(self._make()), _NOTHING
        with _lock:
            tasks.append(self)
            _background.mover.others += 1
            self.advance()
        for wake in asleep:
            wake()

    def advance_in_background(self) -> None:
        """Run all steps that need no waiting, in another thread than the one that has begun it."""
        self.memory.set_device()
        self._context.run(self.advance)

    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            while part := self._executable:
                if not part.advance(wait):
                    return False
                self.error, part.error = self.error or part.error, None
                self._next_part()
        except BaseException as error:
            broken_off = self._working or (self._executable and self._executable.broken_off)
            if not broken_off and not isinstance(error, MPI.Exception | GPUError):
                raise  # a signal handler raised it between two steps, and the task can continue
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._lock.release()
        return True

    def _next_part(self) -> None:
        self._working = True
        part = next(self._parts, None)
        if part:
            part.begin()
        self._executable = part
        if part is None:
            self.end()
        self._working = False

    def end(self) -> None:
        """Note that it is complete."""
        self.done, self.owner = True, None
        with _lock:
            if self in tasks:
                tasks.remove(self)
                _background.mover.others -= 1


class MachineTask(core.RunInFlight, InFlight):
    """A collective in flight that is one run of the compiled machine."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name in error messages."""
        return str(self.prepared.name)

    @property
    def channel(self) -> Abandoned:  # type: ignore[override]
        """The channel of its communicator."""
        found: Abandoned = self.prepared.channel
        return found

    finish_with_others = InFlight.finish


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


_NOTHING = PythonSteps(Program([], [], 0), [])  # the part before the first

INTERVAL = 20e-6  # seconds between two looks at the tasks in flight, if they are to progress often
LONGEST = 1e-3  # the same, otherwise
BETWEEN_LOOKS = 0.2  # seconds between two looks at the processes of other ranks
MOST_IDLE = 100  # looks without any task, before this thread sleeps

tasks: list[InFlight] = []
_lock = threading.RLock()
background: list[ProgressThread] = []  # at most one


def progress() -> None:
    """Advance all tasks in flight by the steps that need no waiting."""
    if tasks:
        with _lock:
            for task in list(tasks):
                if not (task.inside or task.elsewhere):
                    task.advance()
            _look_at_peers()


def _delays() -> contextlib.AbstractContextManager[None]:
    """Delays exceptions of signal handlers if there are tasks that they would break off."""
    return interruptions_delayed() if _background.mover.others else contextlib.nullcontext()


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


class _Background:
    """The thread that advances collectives in flight while the threads of the program do something else.

    It begins with the first collective in flight, and sleeps while there are none.  Runs of the machine move on without
    the lock of the interpreter.
    """

    def __init__(self) -> None:
        self.mover = core.Mover(LONGEST, LONGEST)
        self._thread: threading.Thread | None = None
        self._awake = threading.Event()
        self._ended = False

    def wake(self) -> None:
        """Begin, or go on."""
        asleep.clear()
        self._awake.set()
        if self._thread is None and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self._thread = threading.Thread(target=self._run, name="pycoll progress", daemon=True)
            self._thread.start()
            atexit.register(self._end)

    def _run(self) -> None:
        rest, idle = LONGEST, 0
        before: list[tuple[int, int, int]] = []
        while not self._ended:
            positions = _positions_of_others()
            rest = self.mover.shortest if positions != before or not positions else min(2 * rest, self.mover.longest)
            before = positions
            if not self.mover.move(rest if positions else 0):
                time.sleep(rest)
            _advance_others()
            idle = 0 if tasks else idle + 1
            if idle > MOST_IDLE:
                self._sleep()

    def _sleep(self) -> None:
        self._awake.clear()
        asleep.append(self.wake)
        if not (tasks or self._ended):
            self._awake.wait()

    def _end(self) -> None:
        """End before MPI is finalized."""
        self._ended = True
        self.mover.others += 1  # so that it returns
        self.wake()
        assert self._thread
        self._thread.join()


def _others() -> list[Task]:
    """The tasks in flight that are not runs of the machine, and that no thread of the program waits for."""
    return [task for task in list(tasks) if isinstance(task, Task) and not task.awaited]


def _positions_of_others() -> list[tuple[int, int, int]]:
    return [task.position for task in _others()]


def _advance_others() -> None:
    with _lock:
        for task in _others():
            if not (task.done or task.inside):
                task.advance_in_background()


_background = _Background()
asleep: list[Callable[[], None]] = [_background.wake]  # what wakes the thread, while it sleeps


class ProgressThread:
    """Collectives in flight progress often in the background until `stop`, or the end of its `with` block."""

    def __init__(self, interval: float, longest: float) -> None:
        self._mover = _background.mover
        self._mover.shortest, self._mover.longest = interval, longest

    def stop(self) -> None:
        """Let collectives in flight progress as often as before."""
        if self in background:
            background.clear()
            self._mover.shortest = self._mover.longest = LONGEST

    def __enter__(self) -> ProgressThread:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def progress_thread(interval: float = INTERVAL, longest: float = 1e-3) -> ProgressThread:
    """Let collectives in flight progress often while the program computes: without this, each millisecond.

    Parameters
    ----------
    interval : float, default 20e-6
        The time between two checks, in seconds.
    longest : float, default 1e-3
        The longest time between two checks, in seconds.  It is reached in steps while no message arrives, because the
        program needs the cores too.

    Returns
    -------
    ProgressThread
        A context manager; its method `stop` ends this.

    Raises
    ------
    RuntimeError
        If MPI was not initialized with MPI_THREAD_MULTIPLE, or if `progress_thread` is in effect already.

    Notes
    -----
    Programs in host memory progress in a thread without the lock of the Python interpreter.
    """
    check_real("interval", interval)
    check_real("longest", longest)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("progress_thread needs MPI_THREAD_MULTIPLE, but MPI was initialized with a lower level")
    if background:
        raise RuntimeError("progress_thread: there is one already")
    background.append(ProgressThread(interval, max(interval, longest)))
    return background[0]
