"""Requests: collectives in flight, how a program tests them, and how it waits for them.

A request is not an `MPI.Request`: MPI would treat it as complete.  Passing one to MPI is therefore an error.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import abstractmethod
from typing import Any

from mpi4py import MPI

from ..arguments.memory_kinds import HOST, Memory
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError, with_hint
from ..compiler.program import Collective, Message, Program, is_native
from .channel import Channel
from .executable import Executable, PythonSteps
from .failures import UNDETECTED
from .interruptions import interruptions_delayed
from .progress import InFlight, lock, mover, progress, tasks
from .recording import recorder

NOTHING = PythonSteps(Program([], [], 0), [])
"""The part of a task before the first."""


class Request(InFlight):
    """A collective in flight.

    Notes
    -----
    It progresses in all calls of pycoll, and in another thread (see `pycoll.progress_thread`).  The buffers must not be
    modified or freed until it is complete.
    """

    active = True  # its completion has not been reported yet
    result: Any = None  # what `wait` returns
    awaited = False  # by a thread of the program, which then advances it
    deadline = 0.0  # of the wait; 0 means that `settings.TIMEOUT` holds
    _limit = 0.0  # seconds from `set_timeout` to the deadline

    name: str  # in error messages
    channel: Channel
    memory: Memory = HOST

    def __bool__(self) -> bool:
        """Whether its completion has not been reported yet."""
        return self.active

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Test whether the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.

        Raises
        ------
        Exception
            The error of the collective; raised only once.
        """
        self.poll()
        if self.done:
            self.active = False
            self.raise_error()
        return self.done

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True.

        Raises
        ------
        CollectiveTimeout
            If the collective takes longer than ``PYCOLL_TIMEOUT``.
        Exception
            The error of the collective; raised only once.
        """
        if self.done:
            self.active = False
            self.raise_error()
            return True
        try:
            if recorder.current:
                recorder.current.record_wait(self.finish)
            else:
                self.finish()
        finally:
            self.active = not self.done
        return True

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Test whether the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.
        object
            Its result, as from `wait`; None if it is not complete.
        """
        done = self.Test()
        return done, self.result if done else None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        object
            The result of the blocking function; None for methods of `pycoll.Comm`.
        """
        self.Wait()
        return self.result

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Test whether the collective is complete, without completing the request.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.
        """
        return bool(self.poll())

    def Cancel(self) -> None:
        """Raise MPI.Exception: the MPI standard does not allow a collective to be cancelled."""
        raise MPI.Exception(MPI.ERR_REQUEST)

    def Free(self) -> None:
        """Raise MPI.Exception: the MPI standard does not allow the request of a collective in flight to be freed."""
        raise MPI.Exception(MPI.ERR_REQUEST)

    @property
    @abstractmethod
    def executable(self) -> Executable | None:
        """What runs now; None before the beginning and after the end."""

    def set_device(self) -> None:
        """Let this thread advance it from now on."""

    @abstractmethod
    def begin(self) -> None:
        """Start, and run all steps that need no waiting."""

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
        self.error = error if self.error is None else self.error
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
                self.rest()
        finally:
            self.awaited = False
        self.raise_error()

    def rest(self) -> None:
        """Let others run."""
        os.sched_yield()

    def raise_error(self) -> None:
        """Raise the error of the task, once; or the exception of a signal handler that came meanwhile."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.channel.mailboxes:
            self.channel.mailboxes.raise_delayed()

    def give_up(self) -> None:
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


def _delays() -> contextlib.AbstractContextManager[None]:
    """Delays exceptions of signal handlers if there are tasks that they would break off."""
    return interruptions_delayed() if mover.others else contextlib.nullcontext()


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
