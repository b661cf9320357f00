"""How it is measured: side by side, in turn, each after one of its own and a barrier; a time is the slowest rank's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from mpi4py import MPI

Call = Callable[[], object]

ROUNDS = 8  # between two looks at whether it is enough
MOST = 2000  # rounds
LONG = 4 << 20  # bytes whose share of the time is twice that of a few
STABLE = 0.03  # of the median: how wide its confidence interval may be


def alternate(
    comm: MPI.Intracomm,
    calls: Mapping[str, Call],
    budget: float,
    iterations: int | None = None,
    warmup: int = 1,
    least: int = 5,
    before: Mapping[str, Call] | None = None,
) -> dict[str, np.ndarray]:
    """Seconds of each call: one for each iteration, the slowest rank's.

    One of each call is timed in turn, until the medians are stable, which needs at least `least` times, or about
    `budget` seconds are over, but at least twice; or `iterations` times.  The order changes, since what came before
    may matter.  `before` has what is called untimed before each, if not the same.
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
    """How many rounds come next: one alone, to see what it costs, then as many as there is time for."""
    if done < 2:
        return 1
    return int(np.clip(left * done / spent, 1, ROUNDS))


def _round(comm: MPI.Intracomm, pairs: list[tuple[Call, Call]], order: np.ndarray) -> np.ndarray:
    times = np.empty(len(pairs))
    for number in order:
        times[number] = _one(comm, *pairs[number])
    return times


def _one(comm: MPI.Intracomm, first: Call, call: Call) -> float:
    """After one of the same, so that caches hold what it leaves in them, not what another leaves.

    What comes next waits until all ranks are done: a root that was done early would send into their messages.
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
    """How wide the median's confidence interval of 95 % is, by order statistics, as a share of the median."""
    ordered = np.sort(times)
    n = len(ordered)
    half = 0.98 * np.sqrt(n)
    low, high = max(0, int(n / 2 - half)), min(n - 1, int(np.ceil(n / 2 + half)))
    return float((ordered[high] - ordered[low]) / np.median(ordered))


def race(
    comm: MPI.Intracomm, calls: Mapping[str, Call], budget: float, before: Mapping[str, Call] | None = None
) -> dict[str, float]:
    """The median seconds of each call; those that are clearly slower than the fastest drop out early.

    It takes about `budget` seconds, and at least what two of each call take.
    """
    spent = 0.0
    medians: dict[str, float] = {}
    running = dict(calls)
    for share, keep, least in ((0.25, 1.6, 2), (0.25, 1.25, 3), (0.5, 1.0, 5)):
        found = alternate(comm, running, share * budget, least=least, before=before)
        medians |= {name: float(np.median(times)) for name, times in found.items()}
        fastest = min(medians[name] for name in running)
        running = {name: call for name, call in running.items() if medians[name] <= keep * fastest}
        spent += 2 * float(sum(times.sum() for times in found.values()))
        if len(running) == 1 or spent > budget:
            break
    return medians


def shares(comm: MPI.Intracomm, budget: float, sizes: Sequence[int]) -> Iterator[float]:
    """For each of several vectors in turn its share of the seconds that are left; long ones get more."""
    end = time.monotonic() + budget
    weights = [1 + size / LONG for size in sizes]
    for number, weight in enumerate(weights):
        left = comm.bcast(end - time.monotonic())
        yield max(0.0, left) * weight / sum(weights[number:])
