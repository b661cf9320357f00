"""Aligns the clocks of all ranks with the clock of rank 0, by their offset and drift.

Rank 0 asks each rank for its time several times, and uses the answer with the shortest round trip.  The answer is taken
as the time in the middle of the round trip: Cristian, "Probabilistic clock synchronization", Distributed Computing 3,
1989.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..runtime.recording.recorder import now

QUESTIONS = 16


class ClockOffset(NamedTuple):
    """The offset of the clock of a rank from the clock of rank 0, at a `time` of the former; all in ns."""

    rank: int
    time: int
    offset: int
    error: int  # upper bound


def measure(comm: Any, wait: Callable[[Any], object]) -> list[ClockOffset]:
    """Measure the clocks.  Collective; rank 0 gets the measurements.  `wait` waits for an MPI request, or raises."""
    if comm.rank == 0:
        return [_ask(comm, rank, wait) for rank in range(1, comm.size)]
    question, time = np.empty(1, np.int64), np.empty(1, np.int64)
    for _ in range(QUESTIONS):
        wait(comm.Irecv(question, 0))
        time[0] = now()
        comm.Send(time, 0)
    return []


def _ask(comm: Any, rank: int, wait: Callable[[Any], object]) -> ClockOffset:
    question, answer = np.zeros(1, np.int64), np.empty(1, np.int64)
    answers = []
    for _ in range(QUESTIONS):
        begin = now()
        comm.Send(question, rank)
        wait(comm.Irecv(answer, rank))
        end, time = now(), int(answer[0])
        answers.append(ClockOffset(rank, time, time - (begin + end) // 2, (end - begin + 1) // 2))
    return min(answers, key=lambda measured: measured.error)


class Clock(NamedTuple):
    """The difference between the clocks of a rank and of rank 0: `offset` ns at time 0, and `drift` ns more per ns."""

    offset: float = 0.0
    drift: float = 0.0
    measured: tuple[ClockOffset, ...] = ()

    def corrected(self, time: int) -> int:
        """Convert a time of the rank to the clock of rank 0."""
        return time - round(self.offset + self.drift * time)


def fitted(measured: Sequence[ClockOffset]) -> Clock:
    """Fit a clock to the measurements.

    Offsets within the measurement error count as zero, because ranks on one host read the same clock.
    """
    if all(abs(one.offset) <= one.error for one in measured):
        return Clock(measured=tuple(measured))
    first, last = measured[0], measured[-1]
    if abs(last.offset - first.offset) <= first.error + last.error:
        return Clock(min(measured, key=lambda one: one.error).offset, 0.0, tuple(measured))
    drift = (last.offset - first.offset) / (last.time - first.time)
    return Clock(first.offset - drift * first.time, drift, tuple(measured))
