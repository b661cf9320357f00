"""Summaries of random traces of collectives in flight count each moment once."""

import random
from collections import Counter

import pytest

from pycoll.trace.report import report
from pycoll.trace.summary import lateness, overlap, uses, waited_for
from tests.pure.trace.test_trace import MS, STEPS, TAG_BITS, Ranks

COLLECTIVES = 12


def record(ranks, rank, rng):
    """Record collectives in flight of one rank; return how long it waits, and when it enters each, in ms."""
    time, waits_since, begun, at, waited = rng.randrange(10), None, {}, [0] * COLLECTIVES, 0
    while unfinished := [number for number in range(COLLECTIVES) if at[number] < len(STEPS)]:
        number = rng.choice(unfinished[:4])
        step, what = at[number], STEPS[at[number]][0]
        if waits_since is None and rng.random() < 0.3:
            waits_since = time
        gap, duration = rng.randrange(3), rng.randrange(1, 4)
        ranks.record(rank, ranks.program + 1 + step, time + gap, time + gap + duration, number + 2 << TAG_BITS)
        if what == "wait":
            waited += duration + (gap if waits_since is not None else 0)
        begun.setdefault(number, time + gap)
        time, at[number] = time + gap + duration, step + 1
        if at[number] == len(STEPS):
            ranks.record(rank, ranks.program, begun[number], time, number + 2 << TAG_BITS)
        if waits_since is not None and rng.random() < 0.3:
            ranks.phase(rank, "wait", waits_since, time)
            waits_since = None
    if waits_since is not None:
        ranks.phase(rank, "wait", waits_since, time)
    return waited, begun


@pytest.mark.parametrize("seed", range(20))
def test_random_traces(tmp_path, seed):
    ranks, rng = Ranks(tmp_path, capacity=1000), random.Random(seed)
    (waited0, begun0), (waited1, begun1) = (record(ranks, rank, rng) for rank in range(2))
    trace = ranks.read()
    assert waited_for(trace.ranks[0]) == +Counter({1: waited0 * MS})
    assert waited_for(trace.ranks[1]) == +Counter({0: waited1 * MS})
    pairs = [(begun0[number], begun1[number]) for number in range(COLLECTIVES)]
    late = lateness(trace)
    for rank in range(2):
        times = {time for pair in pairs for time in range(pair[1 - rank], pair[rank])}
        assert late[rank].late == len(times) * MS <= trace.end
        assert late[rank].last >= sum(pair[rank] > pair[1 - rank] for pair in pairs)
        assert overlap(trace.ranks[rank]).flying <= trace.end
    assert all(use.calls == COLLECTIVES and use.total <= trace.end / 1e3 for use in uses(trace))
    assert f"{late[0].late / 1e6:.3f}" in report(trace)
