"""The thread that moves collectives in flight on while the program computes.

It does so every millisecond, or more often with `progress_thread`, and needs MPI_THREAD_MULTIPLE.
"""

from __future__ import annotations

import atexit
import threading
import time
from types import TracebackType
from typing import Any, Protocol

from mpi4py import MPI

from ..base.numbers import check_real
from .progress import LONGEST, lock, mover

INTERVAL = 50e-6  # seconds between two looks at the tasks in flight, if they are to progress often
UNPOLLED = 30e-3  # seconds between two looks in Python at runs of the core, which wake it when they are complete

background: list[ProgressThread] = []  # at most one


class Watched(Protocol):
    """What is advanced in the background by its own method."""

    often: bool  # every INTERVAL, whether or not there is a `progress_thread`

    @property
    def polled(self) -> bool:
        """Whether it moves only when it is advanced: not if it is a single run of the core."""

    @property
    def position(self) -> Any:
        """Its position, for comparison."""

    def advance_in_background(self) -> None:
        """Do all that needs no waiting."""


watched: list[Watched] = []


def watch(one: Watched) -> None:
    """Advance something in the background until `unwatch`."""
    with lock:
        watched.append(one)
        mover.others += 1
    mover.wake()


def unwatch(one: Watched) -> bool:
    """Leave it alone from now on; return whether it was watched."""
    with lock:
        found = one in watched
        if found:
            watched.remove(one)
            mover.others -= 1
    return found


def forget_watched() -> None:
    """Leave all alone, in a child process, which has none of the threads of its parent."""
    watched.clear()
    mover.others = 0


class OtherThreads:
    """Tells whether the other threads of the process compute, so that frequent looks would disturb them.

    If they all wait, as at the end of a backward pass, looks should be frequent: Open MPI sends long messages over TCP
    only in the calls of the sender.
    """

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0

    def compute(self) -> bool:
        """Whether they have used more than a tenth of a core since the last call."""
        wall, cpu = time.perf_counter(), time.process_time() - time.thread_time()
        busy = cpu - self._cpu > (wall - self._wall) / 10
        self._wall, self._cpu = wall, cpu
        return busy


class _Background:
    """The thread that advances collectives in flight while the threads of the program do something else.

    It begins with the first collective in flight, and sleeps while there are none.  Single runs of the core move on
    without the lock of the interpreter.
    """

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pycoll progress", daemon=True)
        self._ended = False
        mover.begins_with(self._begin)

    def _begin(self) -> None:
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self._thread.start()
            atexit.register(self._end)

    def _run(self) -> None:
        rest, before, threads = LONGEST, None, OtherThreads()
        while not self._ended:
            mover.move_until_others()
            _advance()
            shortest = INTERVAL if any(one.often for one in watched) else mover.shortest
            longest = mover.longest if threads.compute() else shortest
            positions = [one.position for one in list(watched) if one.polled]
            rest = UNPOLLED if not positions else shortest if positions != before else min(2 * rest, longest)
            before = positions
            if not mover.move(rest, shortest, longest):
                time.sleep(min(rest, longest))

    def _end(self) -> None:
        """End before MPI is finalized."""
        self._ended = True
        mover.others += 1  # so that it looks at `_ended`
        mover.wake()
        self._thread.join()


def _advance() -> None:
    """Advance all that is watched; a function of its own, so that no variable of the thread keeps it alive."""
    for one in list(watched):
        one.advance_in_background()


_Background()


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
    interval : float, default 50e-6
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
    Programs in host memory progress in a thread without the lock of the Python interpreter.  While MPI transmits long
    messages for them, the time between two checks is up to half a millisecond.
    """
    check_real("interval", interval)
    check_real("longest", longest)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("progress_thread needs MPI_THREAD_MULTIPLE, but MPI was initialized with a lower level")
    if background:
        raise RuntimeError("progress_thread: there is one already")
    background.append(ProgressThread(interval, max(interval, longest)))
    return background[0]
