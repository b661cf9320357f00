"""Summaries of a trace: where time was spent, which ranks waited for which, the slowest rank, and the overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from ..schedule.costs import busbw_factor
from .events import Event, Trace, TracedCollective, TracedRank
from .intervals import Interval, common, length, union

COMPUTING = ("forward", "backward")  # prefixes of the phases that communication overlaps with


class Use(NamedTuple):
    """The calls of one collective at one message size and number of ranks; times of the slowest rank, in µs."""

    name: str
    nbytes: int
    ranks: int
    calls: int
    total: float  # times that overlap count once
    median: float
    algbw: float  # bytes of the vector divided by the median, in GB/s
    busbw: float


def uses(trace: Trace) -> list[Use]:
    """The collectives by total time, longest first."""
    sizes: dict[tuple[Any, ...], int] = defaultdict(int)  # the largest size that a rank knows of a call
    for collective in _collectives(trace):
        sizes[collective.key] = max(sizes[collective.key], collective.program.nbytes)
    slowest: dict[tuple[Any, ...], dict[tuple[Any, ...], Interval]] = defaultdict(dict)
    for one in _collectives(trace):
        calls = slowest[one.name, sizes[one.key], one.program.size]
        calls[one.key] = max(calls.get(one.key, (0, 0)), (one.begin, one.end), key=_duration)
    found = []
    for (name, nbytes, size), calls in slowest.items():
        middle = median(map(_duration, calls.values())) / 1e3
        algbw = nbytes / middle / 1e3 if middle else 0.0
        busbw = algbw * busbw_factor(name.partition(".")[0], size)
        total = length(union(calls.values())) / 1e3
        found.append(Use(name, nbytes, size, len(calls), total, middle, algbw, busbw))
    return sorted(found, key=lambda use: -use.total)


def _duration(interval: Interval) -> int:
    return interval[1] - interval[0]


def _collectives(trace: Trace) -> list[TracedCollective]:
    return [one for rank in trace.ranks.values() for one in rank.collectives if one.finished]


def waited_for(rank: TracedRank) -> Counter[int]:
    """The time in ns that a rank spent waiting for messages to or from each other rank.

    In blocking calls and in waits for collectives in flight, the time up to the end of each wait for a message.  Time
    that several threads wait counts once.
    """
    waited: Counter[int] = Counter()
    steps = sorted(rank.steps(), key=lambda step: (step.end, step.begin))
    times = [(one.begin, one.end) for one in rank.collectives if one.blocks]
    times += [(one.begin, one.end) for one in (*rank.phases, *steps) if one.what == "wait"]
    for begin, end in union(times):
        for step in steps[bisect_left(steps, begin, key=_end) : bisect_right(steps, end, key=_end)]:
            if step.message and step.what == "wait":
                waited[step.message.peer] += step.end - begin
            begin = step.end
    return waited


def _end(step: Event) -> int:
    return step.end


@dataclass
class Lateness:
    """How late a rank entered collectives; times in ns."""

    last: int = 0  # how often it entered last
    late: int = 0  # time that others spent in collectives before it entered; overlapping times count once


def lateness(trace: Trace) -> dict[int, Lateness]:
    """The lateness of each rank, over the collectives that all their ranks recorded."""
    found = {rank: Lateness() for rank in trace.ranks}
    times: dict[int, list[Interval]] = {rank: [] for rank in trace.ranks}
    begun: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    for one in _collectives(trace):
        begun[one.key, one.program.size][one.rank] = one.begin
    for (_, size), begins in begun.items():
        if len(begins) == size > 1:
            first, last = min(begins.values()), max(begins, key=begins.__getitem__)
            found[last].last += 1
            for rank, begin in begins.items():
                times[rank].append((first, begin))
    for rank, late in times.items():
        found[rank].late = length(union(late))
    return found


class GpuUse(NamedTuple):
    """The time of collectives on buffers in GPU memory; times in ns."""

    launches: int  # kernels, copies, and orders of streams
    launching: int
    waiting: int  # for the GPU
    total: int  # of these collectives; while they wait for messages, the GPU may work


def gpu_use(rank: TracedRank) -> GpuUse:
    """Measure how much time of its collectives a rank spent with launches, and with waiting for its GPU."""
    used = [one for one in rank.collectives if any(step.what.startswith(("launch", "finish")) for step in one.steps)]
    launches, waits = (
        [step.end - step.begin for one in used for step in one.steps if step.what.startswith(what)]
        for what in ("launch", "finish")
    )
    return GpuUse(len(launches), sum(launches), sum(waits), sum(one.end - one.begin for one in used))


class Overlap(NamedTuple):
    """The overlap of communication in flight with computation, in ns."""

    flying: int  # communication was in flight
    computing: int  # of that, the rank computed its passes, whether or not data moved
    waited: int  # the rank waited for communication in flight


def overlap(rank: TracedRank) -> Overlap:
    """Measure how much communication of a rank overlapped its computation."""
    loose = [one for one in rank.collectives if not one.blocks]
    flying = union((one.begin, one.end) for one in loose)
    passes = union((one.begin, one.end) for one in rank.phases if one.what.startswith(COMPUTING))
    waits = [(one.begin, one.end) for one in rank.phases if one.what == "wait"]
    waits += [(step.begin, step.end) for one in loose for step in one.steps if step.what == "wait"]
    blocked = [(one.begin, one.end) for one in rank.collectives if one.blocks]
    both, waited = common(flying, passes), union(waits)
    idle = common(both, union([*blocked, *waited]))
    return Overlap(length(flying), length(both) - length(idle), length(waited))
