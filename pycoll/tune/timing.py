"""Times calls alternately, each after an untimed call and a barrier; a time is the maximum over all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from ..base.progress_bar import progress_bar

Call = Callable[[], object]
Point = TypeVar("Point", bound=tuple[Any, ...])

ROUNDS = 8  # the most rounds between two checks of the stop condition
MOST = 2000  # rounds
LONG = 4 << 20  # bytes for which a measurement gets twice the time of a short one
STABLE = 0.03  # the width of the confidence interval of a stable median, as a fraction of the median


def alternate(
    comm: MPI.Intracomm,
    calls: Mapping[str, Call],
    budget: float,
    iterations: int | None = None,
    warmup: int = 1,
    least: int = 5,
    before: Mapping[str, Call] | None = None,
) -> dict[str, np.ndarray]:
    """Return the seconds of each call on the slowest rank, one for each iteration.

    The calls are timed in turn until one of these conditions holds, but at least twice:

    - `iterations` is reached;
    - the medians are stable, after at least `least` iterations;
    - about `budget` seconds have passed.

    The order is random, because a call may influence the next one.  `before` has the untimed calls, if they differ from
    the timed ones.
    """
    pairs = [((before or {}).get(name, call), call) for name, call in calls.items()]
    orders = np.random.default_rng(0)  # the same on all ranks
    for first, _ in pairs * warmup:
        comm.Barrier()
        first()
    times, spent = np.empty((0, len(calls))), 0.0
    while len(times) < (iterations or MOST):
        rounds = iterations or _rounds(len(times), budget - spent, spent)
        start = time.perf_counter()
        mine = [_round(comm, pairs, orders.permutation(len(pairs))) for _ in range(rounds)]
        found, took = _slowest(comm, mine, time.perf_counter() - start)
        times = np.vstack([times, found])
        spent += took
        stable = len(times) >= least and all(_spread(column) < STABLE for column in times.T)
        if len(times) >= 2 and (spent > budget or stable):
            break
    return dict(zip(calls, times.T))


def _rounds(done: int, left: float, spent: float) -> int:
    """Return the number of rounds before the next check: one at first, to estimate its time; then by the time left."""
    if done < 2:
        return 1
    return int(np.clip(left * done / spent, 1, ROUNDS))


def _round(comm: MPI.Intracomm, pairs: list[tuple[Call, Call]], order: np.ndarray) -> np.ndarray:
    times = np.empty(len(pairs))
    for number in order:
        times[number] = _one(comm, *pairs[number])
    return times


def _one(comm: MPI.Intracomm, first: Call, call: Call) -> float:
    """Return the seconds of a call, after an untimed one (`first`) that brings its data into the caches.

    The next call begins when all ranks have finished, because a root that finishes early would disturb their messages.
    """
    first()
    comm.Barrier()
    start = time.perf_counter()
    call()
    spent = time.perf_counter() - start
    comm.Barrier()
    return spent


def _slowest(comm: MPI.Intracomm, times: list[np.ndarray], took: float) -> tuple[np.ndarray, float]:
    mine = np.append(np.concatenate(times), took)
    slowest = np.empty_like(mine)
    comm.Allreduce(mine, slowest, MPI.MAX)
    return slowest[:-1].reshape(len(times), -1), float(slowest[-1])


def _spread(times: np.ndarray) -> float:
    """Return the width of the 95 % confidence interval of the median, by order statistics, relative to the median."""
    ordered = np.sort(times)
    n = len(ordered)
    half = 0.98 * np.sqrt(n)
    low, high = max(0, int(n / 2 - half)), min(n - 1, int(np.ceil(n / 2 + half)))
    return float((ordered[high] - ordered[low]) / np.median(ordered))


def ratio(these: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> float:
    """Return the median of the ratios of two calls in the same rounds.

    Other programs disturb both calls, but not always both medians: the ratio of the medians would be arbitrary.
    """
    return float(np.median(np.divide(these, others)))


def comparable(times: Mapping[str, Sequence[float] | np.ndarray]) -> dict[str, float]:
    """Return the median of the fastest call, and the times of the others in proportion to it, see `ratio`."""
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    fastest = min(medians, key=medians.__getitem__)
    return {name: medians[fastest] * ratio(seconds, times[fastest]) for name, seconds in times.items()}


def updated(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the times of all calls in proportion; those of `before` are scaled to the present speed of the machine."""
    again = {name: seconds for name, seconds in now.items() if name in before}
    if not again:
        return {**now}
    fastest = min(again, key=again.__getitem__)
    slower = again[fastest] / before[fastest]
    return {name: slower * seconds for name, seconds in before.items()} | {**now}


def race(
    comm: MPI.Intracomm, calls: Mapping[str, Call], budget: float, before: Mapping[str, Call] | None = None
) -> dict[str, float]:
    """Return comparable seconds of each call; calls that are clearly slower than the fastest one drop out early.

    This takes about `budget` seconds, but at least two iterations of each call.
    """
    spent = 0.0
    medians: dict[str, float] = {}
    running = dict(calls)
    for share, keep, least in ((0.25, 1.6, 2), (0.25, 1.25, 3), (0.5, 1.0, 5)):
        found = alternate(comm, running, share * budget, least=least, before=before)
        now = comparable(found)
        medians = updated(medians, now)
        running = {name: call for name, call in running.items() if now[name] <= keep * min(now.values())}
        spent += 2 * float(sum(times.sum() for times in found.values()))
        if len(running) == 1 or spent > budget:
            break
    return medians


def paced(comm: MPI.Intracomm, points: Sequence[Point], budget: float, title: str) -> Iterator[tuple[Point, float]]:
    """Yield points, tuples of a primitive and a size, each with its share of the seconds; rank 0 shows the progress."""
    shown = progress_bar(points, title, "point", shown=comm.rank == 0)
    return zip(shown, shares(comm, budget, [point[1] for point in points]))


def shares(comm: MPI.Intracomm, budget: float, sizes: Sequence[int]) -> Iterator[float]:
    """Yield for each vector in turn its share of the seconds that are left; long vectors get more."""
    end = time.monotonic() + budget
    weights = [1 + size / LONG for size in sizes]
    for number, weight in enumerate(weights):
        left = comm.bcast(end - time.monotonic())
        yield max(0.0, left) * weight / sum(weights[number:])
