"""Tasks: collectives in flight, each of which progresses as soon as the message that it waits for has arrived."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.memory_kinds import HOST, Memory
from ..base.errors import GPUError
from .channel import Channel
from .executable import Executable
from .interruptions import interruptions_delayed
from .progress import lock, tasks
from .progress_thread import unwatch, watch
from .requests import NOTHING, Request


class Task(Request):
    """A collective in flight: a sequence of parts, each an executable.

    `parts` returns an iterator over them each time that the task begins; it may compute between two parts, with the
    data received by the previous one.
    """

    often = False
    _executable: Executable | None = None
    _working = False  # between two parts
    _thread = 0  # that advances it

    def __init__(
        self, parts: Callable[[], Iterable[Executable]], name: str, channel: Channel, memory: Memory = HOST
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
        return self._lock.locked()

    @property
    def elsewhere(self) -> bool:
        return self._thread != threading.get_ident()

    def set_device(self) -> None:
        self._thread = threading.get_ident()

    @interruptions_delayed()
    def begin(self) -> None:
        self.set_device()
        self._context = contextvars.copy_context()
        with lock:  # the thread in the background may still look at it as it was started before
            self.done, self._parts, self._executable = False, iter(self._make()), NOTHING
            tasks.append(self)
            self.advance()
            if not self.done:
                watch(self)

    @property
    def polled(self) -> bool:
        """Whether the thread in the background is to advance it."""
        return not self.awaited

    def advance_in_background(self) -> None:
        """Run all steps that need no waiting, in another thread than the one that has begun it."""
        with lock:
            if not (self.done or self.inside or self.awaited):
                self.memory.set_device()
                self._context.run(self.advance)

    def advance(self, wait: bool = False) -> bool:
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
        self.done = True
        with lock:
            if self in tasks:
                tasks.remove(self)
                unwatch(self)


class CoreTask(core.RunInFlight, Request):
    """A collective in flight that is one run of the core."""

    def __init__(self, run: core.Run, prepared: Any) -> None:
        super().__init__(run, prepared, tasks)

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.prepared.name)

    @property
    def channel(self) -> Channel:  # type: ignore[override]
        """The channel of its communicator."""
        found: Channel = self.prepared.channel
        return found

    finish_with_others = Request.finish
