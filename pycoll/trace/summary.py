"""Summaries of a trace: where time was spent, which ranks waited for which, the slowest rank, and the overlap."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from ..schedule.costs import busbw_factor
from .events import Collective, Event, Rank, Trace
from .intervals import common, length, union

COMPUTING = ("forward", "backward")  # how the names of the phases begin that communication overlaps with


class Use(NamedTuple):
    """The calls of one collective with vectors of so many bytes on so many ranks; times in µs, the slowest rank's."""

    name: str
    nbytes: int
    ranks: int
    calls: int
    total: float
    median: float
    algbw: float  # bytes of the vector by the median, in GB/s
    busbw: float


def uses(trace: Trace) -> list[Use]:
    """What was called, the one that took longest first."""
    sizes: dict[tuple[Any, ...], int] = defaultdict(int)  # that of a call on the rank that knows most of it
    for collective in _collectives(trace):
        sizes[collective.key] = max(sizes[collective.key], collective.program.nbytes)
    times: dict[tuple[Any, ...], dict[tuple[Any, ...], float]] = defaultdict(lambda: defaultdict(float))
    for one in _collectives(trace):
        calls = times[one.name, sizes[one.key], one.program.size]
        calls[one.key] = max(calls[one.key], (one.end - one.begin) / 1e3)
    found = []
    for (name, nbytes, size), calls in times.items():
        middle = median(calls.values())
        algbw = nbytes / middle / 1e3 if middle else 0.0
        busbw = algbw * busbw_factor(name.partition(".")[0], size)
        found.append(Use(name, nbytes, size, len(calls), sum(calls.values()), middle, algbw, busbw))
    return sorted(found, key=lambda use: -use.total)


def _collectives(trace: Trace) -> list[Collective]:
    return [one for rank in trace.ranks.values() for one in rank.collectives if one.finished]


def waited_for(rank: Rank) -> Counter[int]:
    """How long a rank did nothing but wait for each other's messages, in ns: to come, or to be taken.

    That is in blocking calls, and while it waited for what was in flight.
    """
    waited: Counter[int] = Counter()
    steps = defaultdict(list)
    for step in rank.steps():
        steps[step.thread].append(step)
        if step.message and step.what == "wait":
            waited[step.message.peer] += step.end - step.begin
    for thread, found in steps.items():
        found.sort(key=lambda step: step.begin)
        for wait in [phase for phase in rank.phases if phase.what == "wait" and phase.thread == thread]:
            _share_out(wait, found, waited)
    return waited


def _share_out(wait: Event, steps: list[Event], waited: Counter[int]) -> None:
    """Attribute a wait for several messages to their senders: the time before each message to its own."""
    since = wait.begin
    for step in _within(wait, steps):
        if step.message and step.what == "wait":
            waited[step.message.peer] += max(0, step.begin - since)
        since = step.end


def _within(wait: Event, steps: list[Event]) -> list[Event]:
    first = _first(steps, wait.begin)
    return steps[first : _first(steps, wait.end)]


def _first(steps: list[Event], time: int) -> int:
    """The place of the first step that does not begin before that time."""
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if steps[middle].begin < time else (low, middle)
    return low


@dataclass
class Lateness:
    """How a rank came to the collectives that others had come to before; times in ns."""

    last: int = 0  # how often it was the last to come
    late: int = 0  # after the first, all in all


def lateness(trace: Trace) -> dict[int, Lateness]:
    """Who was late, in collectives of which all ranks are in the trace."""
    found = {rank: Lateness() for rank in trace.ranks}
    begun: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
    for one in _collectives(trace):
        begun[one.key, one.program.size][one.rank] = one.begin
    for (_, size), begins in begun.items():
        if len(begins) == size > 1:
            first, last = min(begins.values()), max(begins, key=begins.__getitem__)
            found[last].last += 1
            for rank, begin in begins.items():
                found[rank].late += begin - first
    return found


class Overlap(NamedTuple):
    """Of the communication that is in flight while a rank does other things; in ns."""

    flying: int  # how long there was any
    computing: int  # how long of that the rank computed its passes, whether or not anything moved
    waited: int  # how long it waited for what was in flight: what was not overlapped


def overlap(rank: Rank) -> Overlap:
    """The overlap of communication with the computation of a rank."""
    loose = [one for one in rank.collectives if not one.blocks]
    flying = union((one.begin, one.end) for one in loose)
    passes = union((one.begin, one.end) for one in rank.phases if one.what.startswith(COMPUTING))
    waits = [(one.begin, one.end) for one in rank.phases if one.what == "wait"]
    waits += [(step.begin, step.end) for one in loose for step in one.steps if step.what == "wait"]
    blocked = [(one.begin, one.end) for one in rank.collectives if one.blocks]
    both, waited = common(flying, passes), union(waits)
    idle = common(both, union([*blocked, *waited]))
    return Overlap(length(flying), length(both) - length(idle), length(waited))
