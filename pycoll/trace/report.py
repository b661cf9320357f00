"""The summary of a trace, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from .events import Trace, TracedRank
from .intervals import length, union
from .summary import gpu_use, lateness, overlap, uses, waited_for


def report(trace: Trace) -> str:
    """Format all tables."""
    return "\n\n".join(_parts(trace)) + "\n"


def _parts(trace: Trace) -> Iterator[str]:
    yield f"{len(trace.ranks)} ranks, {trace.end / 1e6:.3f} ms, {trace.library}"
    if trace.missing:
        yield f"no trace of rank {', '.join(map(str, trace.missing))}"
    for rank in trace.ranks.values():
        if rank.dropped:
            yield f"rank {rank.number}: the first {rank.dropped} events were overwritten"
    yield from _uses(trace)
    yield from _phases(trace)
    yield from _waits(trace)
    yield from _gpus(trace)
    yield from _overlap(trace)
    yield from _clocks(trace)


def _uses(trace: Trace) -> Iterator[str]:
    what = ["collective", "bytes", "ranks", "calls"]
    headings = [*what, "total\n(ms)", "median\n(µs)", "algbw\n(GB/s)", "busbw\n(GB/s)"]
    rows = [use._replace(total=use.total / 1e3) for use in uses(trace)]
    yield _table(rows, headings, floatfmt=("", "", "", "", ".3f", ".1f", ".3f", ".3f")) if rows else "no collectives"


def _phases(trace: Trace) -> Iterator[str]:
    names = dict.fromkeys(phase.what for rank in trace.ranks.values() for phase in rank.phases)
    if names:
        rows = [[name, *(_time_in(rank, name) for rank in trace.ranks.values())] for name in names]
        yield _table(rows, ["phase (ms)", *(f"rank {number}" for number in trace.ranks)], floatfmt=".3f")


def _time_in(rank: TracedRank, name: str) -> float:
    return length(union((phase.begin, phase.end) for phase in rank.phases if phase.what == name)) / 1e6


def _waits(trace: Trace) -> Iterator[str]:
    if len(trace.ranks) < 2:
        return
    waits, late = {number: waited_for(rank) for number, rank in trace.ranks.items()}, lateness(trace)
    peers = sorted({peer for waited in waits.values() for peer in waited})
    rows = [
        [
            number,
            *(waited[peer] / 1e6 for peer in peers),
            waited.total() / 1e6,
            late[number].last,
            late[number].late / 1e6,
        ]
        for number, waited in waits.items()
    ]
    headings = ["waited (ms)\nrank", *(f"for\n{peer}" for peer in peers), "total", "entered\nlast", "late by\n(ms)"]
    yield _table(rows, headings, floatfmt=".3f")
    if compared := sum(one.last for one in late.values()):
        slowest = max(late, key=lambda number: late[number].late)
        yield f"slowest: rank {slowest}, entered {late[slowest].last} of {compared} collectives last"


def _gpus(trace: Trace) -> Iterator[str]:
    rows = []
    for number, rank in trace.ranks.items():
        launches, launching, waiting, total = gpu_use(rank)
        if total:
            shares = [f"{part / total:.0%}" for part in (launching, waiting)]
            rows.append((number, launches, launching / 1e6, waiting / 1e6, total / 1e6, *shares))
    if rows:
        headings = ["GPU\nrank", "\nlaunches", "launching\n(ms)", "waiting\n(ms)", "total\n(ms)"]
        headings += ["share of\nlaunches", "\nwaits"]
        yield _table(rows, headings, floatfmt=".3f", colalign=("right",) * 7)


def _overlap(trace: Trace) -> Iterator[str]:
    rows = []
    for number, rank in trace.ranks.items():
        flying, computing, waited = overlap(rank)
        if flying:
            rows.append((number, flying / 1e6, computing / 1e6, f"{computing / flying:.0%}", waited / 1e6))
    if rows:
        headings = ["in flight\nrank", "\n(ms)", "while\ncomputing", "\noverlap", "then\nwaited"]
        yield _table(rows, headings, floatfmt=".3f", colalign=("right",) * 5)


def _clocks(trace: Trace) -> Iterator[str]:
    rows = []
    for number, rank in trace.ranks.items():
        measured = rank.clock.measured
        if measured:
            first, last = measured[0], measured[-1]
            drift = 1e6 * (last.offset - first.offset) / (last.time - first.time) if len(measured) > 1 else None
            rows.append((number, first.offset / 1e3, first.error / 1e3, drift, "yes" if rank.clock.offset else "no"))
    if rows:
        headings = ["clock\nrank", "ahead of rank 0\n(µs)", "to within\n(µs)", "drift\n(ppm)", "corrected"]
        yield _table(rows, headings, floatfmt=("", ".3f", ".3f", ".3f"), missingval="-")
    hosts = {rank.about["host"] for rank in trace.ranks.values()}
    if len(hosts) > 1 and len(rows) < len(trace.ranks) - 1:
        yield "not all clocks were compared: times on different hosts come from their system clocks"


def _table(rows: Sequence[Any], headings: Sequence[str], **how: Any) -> str:
    return str(tabulate(rows, headings, **how))
