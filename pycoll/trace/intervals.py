"""Operations on lists of time intervals (begin, end), in order and disjoint."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals in any order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return found


def common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """The intersection of two unions."""
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
    """The total length."""
    return sum(end - begin for begin, end in intervals)
