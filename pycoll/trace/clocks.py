"""Aligns the ranks' clocks with rank 0's: how far apart they are, and how fast they drift.

Rank 0 asks for the time and takes it for that of the middle between question and answer, of several the answer that
came soonest: Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..runtime.recording.recorder import now

QUESTIONS = 16


class Measurement(NamedTuple):
    """How far the clock of a rank is ahead of that of rank 0, at some time by the former; all in ns."""

    rank: int
    time: int
    offset: int
    error: int  # at most


def measure(comm: Any, wait: Callable[[Any], object]) -> list[Measurement]:
    """Measure on all ranks together; rank 0 gets the measurements.  `wait` waits for a request of MPI, or raises."""
    if comm.rank == 0:
        return [_ask(comm, rank, wait) for rank in range(1, comm.size)]
    question, time = np.empty(1, np.int64), np.empty(1, np.int64)
    for _ in range(QUESTIONS):
        wait(comm.Irecv(question, 0))
        time[0] = now()
        comm.Send(time, 0)
    return []


def _ask(comm: Any, rank: int, wait: Callable[[Any], object]) -> Measurement:
    question, answer = np.zeros(1, np.int64), np.empty(1, np.int64)
    answers = []
    for _ in range(QUESTIONS):
        begin = now()
        comm.Send(question, rank)
        wait(comm.Irecv(answer, rank))
        end, time = now(), int(answer[0])
        answers.append(Measurement(rank, time, time - (begin + end) // 2, (end - begin + 1) // 2))
    return min(answers, key=lambda measured: measured.error)


class Clock(NamedTuple):
    """What must be taken off a rank's times to get rank 0's: `offset` ns at time 0, and so much more for each ns."""

    offset: float = 0.0
    drift: float = 0.0
    measured: tuple[Measurement, ...] = ()

    def corrected(self, time: int) -> int:
        """A time of rank 0's clock."""
        return time - round(self.offset + self.drift * time)


def fitted(measured: Sequence[Measurement]) -> Clock:
    """The clock that fits the measurements.

    What is not more than the error is taken for none: on one host all ranks read the same clock.
    """
    if all(abs(one.offset) <= one.error for one in measured):
        return Clock(measured=tuple(measured))
    first, last = measured[0], measured[-1]
    if abs(last.offset - first.offset) <= first.error + last.error:
        return Clock(min(measured, key=lambda one: one.error).offset, 0.0, tuple(measured))
    drift = (last.offset - first.offset) / (last.time - first.time)
    return Clock(first.offset - drift * first.time, drift, tuple(measured))
