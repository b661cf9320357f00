"""Progress: collectives in flight move on while the program waits for one of them, tests one, or runs another.

Meanwhile, `pycoll.runtime.progress_thread` moves them on in the background.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..base import settings
from ..base.errors import CollectiveTimeout
from .failures import UNDETECTED


class InFlight(ABC):
    """A collective in flight, as those that move it on see it."""

    channel: Any  # a `pycoll.runtime.channel.Channel`, which itself waits by this module
    error: BaseException | None = None  # in the class, so that a request is created faster
    done = False

    @property
    @abstractmethod
    def inside(self) -> bool:
        """Whether it is in the middle of a step, which itself lets the other ones progress."""

    @property
    def elsewhere(self) -> bool:
        """Whether it must be advanced in another thread."""
        return False

    @abstractmethod
    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""

    @abstractmethod
    def end(self) -> None:
        """Note that it is complete."""

    @abstractmethod
    def give_up(self) -> None:
        """Raise CollectiveTimeout, and make the communicator unusable."""


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


def gathered(comm: MPI.Intracomm, row: list[int], what: str, state: Callable[[], str] | None = None) -> np.ndarray:
    """The rows of integers of all ranks, which call this together; see `until`."""
    table = np.empty((comm.size, len(row)), np.int64)
    until(comm.Iallgather(np.array(row, np.int64), table).Test, what, state)
    return table


_unfinished: list[Callable[[], object]] = []  # they hold requests, whose memory MPI may still access


def drain(channel: object) -> None:
    """Wait for the collectives in flight on a channel before it is freed."""
    if tasks:
        until(
            lambda: all(task.channel is not channel for task in tasks),
            "the collectives in flight on the communicator",
            None,
            [task for task in tasks if task.channel is channel],
        )
