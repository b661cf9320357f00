"""Tasks: collectives in flight, each of which progresses as soon as the message that it waits for has arrived.

The tasks of a thread progress while that thread is in a call of pycoll: while it waits for one of them, tests one, or
runs another collective.  `progress_thread` makes them progress in the background.
"""

from __future__ import annotations

import atexit
import contextlib
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


class InFlight(ABC):
    """What tasks have in common: a collective in flight, and how a program waits for it."""

    # in the class, so that a task is created faster
    error: BaseException | None = None
    done = False
    thread = 0  # that advances it
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
    def place(self) -> tuple[int, int, int]:
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
        """Advance all tasks of this thread; return whether this one is complete."""
        if not self.done:
            self.thread = threading.get_ident()
            progress()
            if self.deadline and not self.done and time.monotonic() > self.deadline:
                self.give_up()
        return self.done

    def run(self) -> None:
        """Start and finish, as a blocking call; an exception that ends the wait makes the communicator unusable."""
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
        interruption: BaseException | None = None
        while True:
            try:
                if self not in tasks and not self.done:  # in this order, because another thread may complete it
                    self.begin()
                self._wait()
                break
            except BaseException as error:
                if self.done or interruption:
                    raise
                interruption = error
        if interruption:
            raise interruption

    def _wait(self) -> None:
        """Wait until it is complete, while all tasks of this thread progress."""
        with _lock:  # another thread may be advancing it
            self.thread = threading.get_ident()
        deadline = self.deadline or (time.monotonic() + settings.TIMEOUT if settings.TIMEOUT else 0.0)
        while not self.done:
            if not (len(tasks) > 1 or deadline or background):
                self.advance(wait=True)  # without the lock, so that other threads can run
                break
            progress()
            if self.done:
                break
            if deadline and time.monotonic() > deadline:
                self.give_up()
            pause()
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
    _running = False

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

    @property
    def executable(self) -> Executable | None:
        """The part that runs now; None before the beginning and after the end."""
        return self._executable

    @property
    def inside(self) -> bool:
        """Whether it is in the middle of a step, which itself lets the other tasks progress."""
        return self._running

    def begin(self) -> None:
        """Start, and run all steps that need no waiting."""
        self.thread, self.done = threading.get_ident(), False
        self._parts, self._executable = iter(self._make()), _NOTHING
        with _lock:
            tasks.append(self)
            self.advance()

    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        self._running = True
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
            self._running = False
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


class MachineTask(core.Flight, InFlight):
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

INTERVAL = 20e-6  # seconds between two checks by a thread of the tasks in flight

tasks: list[InFlight] = []
_lock = threading.RLock()
background: list[ProgressThread] = []  # at most one


def progress() -> None:
    """Advance all tasks in flight by the steps that need no waiting."""
    if tasks:
        me = threading.get_ident()
        with _lock:
            for task in list(tasks):
                if (background or task.thread == me) and not task.inside:
                    task.advance()


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
            pause()
    except BaseException:
        _unfinished.append(done)
        raise


_unfinished: list[Callable[[], object]] = []  # they hold requests, whose memory MPI may still access


def pause() -> None:
    """Yield the core for a moment; for longer if the progress thread advances the tasks."""
    if background:
        time.sleep(background[0].interval)
    else:
        os.sched_yield()


def drain(channel: Abandoned | None) -> None:
    """Wait for the collectives in flight on a channel before it is freed."""
    if tasks:
        until(
            lambda: all(task.channel is not channel for task in tasks),
            "the collectives in flight on the communicator",
            None,
            [task for task in tasks if task.channel is channel],
        )


@contextlib.contextmanager
def advanced_elsewhere() -> Iterator[None]:
    """Advance the tasks of this thread in another thread while this one is in a blocking call of MPI."""
    if not tasks or background or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        yield
        return
    me, ended = threading.get_ident(), threading.Event()

    def go_on() -> None:
        while not ended.is_set():
            with _lock:
                for task in [task for task in tasks if task.thread == me]:
                    task.memory.adopt()
                    task.advance()
            time.sleep(INTERVAL)

    thread = threading.Thread(target=go_on, name="pycoll meanwhile", daemon=True)
    with interruptions_delayed():  # the thread must have ended before another one advances the same tasks
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _places() -> list[tuple[int, int, int]]:
    """The positions of all tasks, for comparison."""
    return [task.place for task in list(tasks)]


class ProgressThread:
    """A thread that advances collectives in flight until `stop`, or the end of its `with` block."""

    def __init__(self, interval: float, longest: float) -> None:
        self.interval, self._longest = interval, longest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pycoll progress", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        rest, before = self.interval, _places()
        while not self._stop.is_set():
            for task in list(tasks):
                task.memory.adopt()
            progress()
            places = _places()
            rest = self.interval if places != before else min(2 * rest, self._longest)
            before = places
            time.sleep(rest)

    def stop(self) -> None:
        """Stop the thread; collectives in flight then progress in Test, Wait and other calls again."""
        self._stop.set()
        self._thread.join()
        atexit.unregister(self.stop)
        background.clear()

    def __enter__(self) -> ProgressThread:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def progress_thread(interval: float = INTERVAL, longest: float = 1e-3) -> ProgressThread:
    """Start a background thread in which collectives in flight progress while the program computes.

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
        The thread, a context manager; its method `stop` stops it.

    Raises
    ------
    RuntimeError
        If MPI was not initialized with MPI_THREAD_MULTIPLE, if there is already a progress thread, or if collectives
        are in flight.

    Notes
    -----
    The thread combines in the default error state of NumPy.
    """
    check_real("interval", interval)
    check_real("longest", longest)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("progress_thread needs MPI_THREAD_MULTIPLE, but MPI was initialized with a lower level")
    if background or tasks:
        raise RuntimeError(
            "progress_thread: " + ("there is one already" if background else "collectives are in flight")
        )
    background.append(ProgressThread(interval, max(interval, longest)))
    return background[0]
