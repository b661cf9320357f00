"""Stretches of time: lists of (begin, end) that are in order and do not touch each other."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """All that is in any of them."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return found


def common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """What is in both unions."""
    found, here, there = [], 0, 0
    while here < len(some) and there < len(others):
        one, other = some[here], others[there]
        begin, end = max(one[0], other[0]), min(one[1], other[1])
        if begin < end:
            found.append((begin, end))
        if one[1] < other[1]:
            here += 1
        else:
            there += 1
    return found


def length(intervals: list[Interval]) -> int:
    """How long they are all in all."""
    return sum(end - begin for begin, end in intervals)
