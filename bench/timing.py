"""How it is measured: side by side, in alternation, the slowest rank's time, medians."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

LOOP = 300e-6  # what takes less is timed in a loop of about this many seconds


def medians(comm: MPI.Intracomm, calls: Sequence[Callable[[], object]], budget: float) -> list[float]:
    """Seconds per call: for each, the median over samples of the slowest rank's time.

    A sample of each call is taken in turn, after a barrier; `budget` is about how many seconds all samples
    together may take.
    """
    for call in calls:
        call()
    first = _slowest(comm, [[_sample(comm, call, 1) for call in calls]])[0]
    loops = [int(np.clip(LOOP / seconds, 1, 500)) for seconds in first]
    samples = int(np.clip(budget / sum(n * seconds for n, seconds in zip(loops, first)), 5, 100))
    times = [[_sample(comm, call, n) for call, n in zip(calls, loops)] for _ in range(samples)]
    return list(np.median(_slowest(comm, times), axis=0))


def _sample(comm: MPI.Intracomm, call: Callable[[], object], loops: int) -> float:
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def _slowest(comm: MPI.Intracomm, times: list[list[float]]) -> np.ndarray:
    mine = np.array(times)
    slowest = np.empty_like(mine)
    comm.Allreduce(mine, slowest, MPI.MAX)
    return slowest
