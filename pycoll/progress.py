"""Collectives in flight: each is a list of calls that goes on whenever what it waits for has come.

There is no progress between calls, unless `progress_thread` makes it: every flight of a thread goes on while
that thread waits for one of them, tests one, or is in another pycoll call.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from . import settings
from .binding import Bound
from .engine import Channel
from .errors import CollectiveTimeout
from .memory import HOST, Memory
from .program import Collective, Program, Start

if TYPE_CHECKING:
    from .cuda.streams import Mark


class Flight:
    """A collective under way: its parts one after the other, each a bound program.

    `parts` may compute between two parts, with what the one before has brought.
    """

    def __init__(self, parts: Iterable[Bound], name: str, channel: Channel, memory: Memory = HOST) -> None:
        self.name = name  # for messages to people
        self.channel, self.memory = channel, memory
        self.thread = threading.get_ident()
        self.error: BaseException | None = None
        self.done = False
        self._parts = iter(parts)
        self._bound: Bound | None = None
        self._at = 0

    def take_off(self) -> None:
        """Start, and go on as far as that needs no waiting."""
        with _lock:
            flights.append(self)
            self._bound, self._at = _NOTHING, 0
            self.advance()

    @property
    def awaited(self) -> MPI.Request | Mark:
        """What it waits for now."""
        assert self._bound
        request = self._bound.waits[self._at]
        assert request
        return request

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it is, to be compared."""
        return id(self), id(self._bound), self._at

    def advance(self) -> bool:
        """Go on as far as that needs no waiting; whether it is at its end."""
        try:
            while self._bound:
                calls, waits = self._bound.calls, self._bound.waits
                while self._at < len(calls):
                    request = waits[self._at]
                    if request is None:
                        self._do(calls[self._at])
                    elif not request.Test():
                        return False
                    self._at += 1
                if not self._next_part():
                    break
        except Exception as error:  # raised where it is waited for, not where it goes on
            self._land(error)
        return True

    def _do(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (ArithmeticError, Warning) as error:  # the other ranks wait for what comes after
            self.error = self.error or error

    def _next_part(self) -> bool:
        self._bound, self._at = next(self._parts, None), 0
        if self._bound is None:
            self._land(None)
        return self._bound is not None

    def _land(self, error: Exception | None) -> None:
        self.error = self.error or error
        self.done = True
        flights.remove(self)

    def go_on(self) -> bool:
        """Let all flights of this thread go on, this one among them; whether it is done."""
        if not self.done:
            self.thread = threading.get_ident()
            progress()
        return self.done

    def arrive(self) -> None:
        """Wait for its end, with all flights of this thread going on; raises what went wrong in it."""
        self.thread = threading.get_ident()
        deadline = time.monotonic() + settings.TIMEOUT if settings.TIMEOUT else None
        while not self.done:
            progress()
            if self.done:
                break
            if deadline and time.monotonic() > deadline:
                self.give_up()
            elif len(flights) > 1 or deadline or background:
                pause()
            else:
                self.awaited.Wait()
        self.raise_error()

    def raise_error(self) -> None:
        """What went wrong, once."""
        if self.error:
            error, self.error = self.error, None
            raise error

    def give_up(self) -> None:
        """It takes too long: raise CollectiveTimeout."""
        with _lock:
            flights.remove(self)
            _given_up.append(self)
        self.done = True
        problem = f"{self.name} did not finish in {settings.TIMEOUT:g} s: {self._state()}"
        self.channel.broken = problem
        raise CollectiveTimeout(problem)

    def _state(self) -> str:
        assert self._bound
        program = self._bound.program
        if program.steps and type(program.steps[0]) is Collective:
            return "MPI's own collective is under way"
        started = [step.message for step in program.steps[: self._at] if type(step) is Start]
        open_ones = [number for number in started if not self._bound.requests[number].Test()]
        now = min((program.messages[number].round for number in open_ones), default=0)
        waits = [program.messages[number] for number in open_ones if program.messages[number].round == now]
        if not waits:
            return "it waits for the GPU"
        peers = sorted({f"rank {m.peer} to {'take' if m.outgoing else 'send'} its message" for m in waits})
        return f"in round {now + 1} it waits for {', '.join(peers)}"


_NOTHING = Bound(Program([], [], 0), [], [], np.empty(0, np.uint8))  # the part before the first

flights: list[Flight] = []
_given_up: list[Flight] = []  # their messages may still come, into memory that must be there
_lock = threading.RLock()
background: list[ProgressThread] = []  # at most one


def progress() -> None:
    """Let everything in flight go on, as far as that needs no waiting."""
    if flights:
        me = threading.get_ident()
        with _lock:
            for flight in list(flights):
                if background or flight.thread == me:
                    flight.advance()


def until(done: Callable[[], object], concerned: Iterable[Flight] = ()) -> None:
    """Wait for what is not one flight, with all flights going on; CollectiveTimeout speaks of those concerned."""
    deadline = time.monotonic() + settings.TIMEOUT if settings.TIMEOUT else None
    while not done():
        progress()
        if deadline and time.monotonic() > deadline:
            for flight in concerned:
                flight.give_up()
            raise CollectiveTimeout(f"a message did not come or go in {settings.TIMEOUT:g} s")
        pause()


def pause() -> None:
    """Let others have the core for a moment: for longer where the progress thread looks after what is in flight."""
    if background:
        time.sleep(background[0].interval)
    else:
        os.sched_yield()


def settle(channel: Channel | None) -> None:
    """Wait for the end of what is in flight on a channel, before MPI is called to block on its communicator.

    All ranks have started the same collectives on it before they come to that call.
    """
    if flights:
        until(lambda: all(flight.channel is not channel for flight in flights))


def _places() -> list[tuple[int, int, int]]:
    """Where all flights are, to be compared."""
    return [flight.place for flight in list(flights)]


class ProgressThread:
    """Lets collectives in flight go on in the background, until `stop` or the end of its with block."""

    def __init__(self, interval: float, longest: float) -> None:
        self.interval, self._longest = interval, longest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pycoll progress", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        rest, before = self.interval, _places()
        while not self._stop.is_set():
            for flight in list(flights):
                flight.memory.adopt()
            progress()
            places = _places()
            rest = self.interval if places != before else min(2 * rest, self._longest)
            before = places
            time.sleep(rest)

    def stop(self) -> None:
        """End it; what is in flight then goes on in Test, Wait and other calls again."""
        self._stop.set()
        self._thread.join()
        atexit.unregister(self.stop)
        background.clear()

    def __enter__(self) -> ProgressThread:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def progress_thread(interval: float = 20e-6, longest: float = 1e-3) -> ProgressThread:
    """Start a background thread in which collectives in flight go on while the program computes.

    It looks at them every `interval` seconds, and less often, down to every `longest`, while nothing comes: the
    program needs the cores too.  It combines with NumPy's default error state.  RuntimeError if MPI was
    not started with MPI_THREAD_MULTIPLE, or if there is one already.  Start it before there is anything in flight.
    """
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("progress_thread needs MPI_THREAD_MULTIPLE, which this MPI was not started with")
    if background or flights:
        raise RuntimeError(
            "progress_thread: " + ("there is one already" if background else "collectives are in flight")
        )
    background.append(ProgressThread(interval, max(interval, longest)))
    return background[0]
