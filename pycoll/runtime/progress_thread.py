"""The thread that moves collectives in flight on while the program computes.

It does so every millisecond, or more often with `progress_thread`, and needs MPI_THREAD_MULTIPLE.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from types import TracebackType

from mpi4py import MPI

from .. import core
from ..base.numbers import check_real
from .progress import LONGEST, InFlight, lock, mover, tasks

INTERVAL = 20e-6  # seconds between two looks at the tasks in flight, if they are to progress often

background: list[ProgressThread] = []  # at most one


class _Background:
    """The thread that advances collectives in flight while the threads of the program do something else.

    It begins with the first collective in flight, and sleeps while there are none.  Single runs of the core move on
    without the lock of the interpreter.
    """

    def __init__(self) -> None:
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
        rest = LONGEST
        before: list[tuple[int, int, int]] = []
        while not self._ended:
            if not mover.move_until_others():
                self._sleep()
                continue
            positions = [task.position for task in _others()]
            rest = mover.shortest if positions != before else min(2 * rest, mover.longest)
            before = positions
            if not mover.move(rest):
                time.sleep(rest)
            _advance_others()

    def _sleep(self) -> None:
        self._awake.clear()
        asleep.append(self.wake)
        if not (tasks or self._ended):
            self._awake.wait()

    def _end(self) -> None:
        """End before MPI is finalized."""
        self._ended = True
        mover.others += 1  # so that it returns
        self.wake()
        assert self._thread
        self._thread.join()


def _others() -> list[InFlight]:
    """The tasks in flight that are not single runs of the core, and that no thread of the program waits for."""
    return [task for task in list(tasks) if not (isinstance(task, core.RunInFlight) or task.awaited)]


def _advance_others() -> None:
    with lock:
        for task in _others():
            if not (task.done or task.inside):
                task.advance_in_background()


asleep: list[Callable[[], None]] = [_Background().wake]  # what wakes the thread, while it sleeps


class ProgressThread:
    """Collectives in flight progress often in the background until `stop`, or the end of its `with` block."""

    def __init__(self, interval: float, longest: float) -> None:
        mover.shortest, mover.longest = interval, longest

    def stop(self) -> None:
        """Let collectives in flight progress as often as before."""
        if self in background:
            background.clear()
            mover.shortest = mover.longest = LONGEST

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
