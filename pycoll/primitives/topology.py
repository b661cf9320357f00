"""Who is whose neighbour: the arithmetic that schedules share, O(log size) each."""

from __future__ import annotations

from typing import NamedTuple

from ..schedule.registry import Hosts


class Node(NamedTuple):
    """A rank's place in a tree; `children` come with the range of ranks in their subtree."""

    parent: int | None
    children: list[tuple[int, range]]
    subtree: range


def binomial(rank: int, size: int, root: int) -> Node:
    """The binomial tree whose subtrees are ranges of ranks, whatever the root.

    The ranks are cut in half; the root takes the first rank of the half that it is not in as its child;
    each half goes on alone.  So there are ceil(log2(size)) levels, blocks of a subtree lie side by side,
    and contributions can be combined in rank order without rotating the ranks.  Children are listed
    with the largest subtree first.
    """
    node = Node(None, [], range(size))
    top, ranks = root, range(size)
    while len(ranks) > 1:
        middle = (len(ranks) + 1) // 2
        near, far = ranks[:middle], ranks[middle:]
        if top not in near:
            near, far = far, near
        child = far[0]
        if rank == top:
            node.children.append((child, far))
        elif rank == child:
            node = Node(top, [], far)
        top, ranks = (top, near) if rank in near else (child, far)
    return node


class Level(NamedTuple):
    """One level of repeated halving: my half, the other half, its source for me, and my targets in it."""

    mine: range
    other: range
    source: int
    targets: list[int]


def halvings(rank: int, size: int) -> list[Level]:
    """Repeated halving of the ranks down to `rank` alone, any size, the two largest halves first.

    Ranks at the same place in both halves exchange.  Where the lower half is one larger, its last rank
    hears from its neighbour, the first of the upper half, which so has two targets, and it has none; every
    rank is such a helper at one level at most.
    """
    levels = []
    ranks = range(size)
    while len(ranks) > 1:
        middle = (len(ranks) + 1) // 2
        lower, upper = ranks[:middle], ranks[middle:]
        uneven = len(lower) > len(upper)
        if rank in upper:
            helped = [lower[-1]] if uneven and rank == upper[0] else []
            levels.append(Level(upper, lower, rank - middle, [rank - middle, *helped]))
            ranks = upper
        else:
            odd_one = uneven and rank == lower[-1]
            levels.append(
                Level(lower, upper, upper[0], []) if odd_one else Level(lower, upper, rank + middle, [rank + middle])
            )
            ranks = lower
    return levels


def inorder(index: int, size: int) -> tuple[int | None, int | None, int | None]:
    """Parent, left and right child in a binary tree whose in-order traversal is 0, 1, ..., size - 1.

    0 is the root and has a right child alone; odd numbers are leaves.  After NCCL's double binary tree
    (ncclGetBtree), itself after Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
    broadcast, reduction and scan", Parallel Computing 35 (2009).
    """
    if index == 0:
        top = 1 << (size - 1).bit_length() - 1 if size > 1 else None
        return None, None, top
    bit = index & -index
    parent = (index ^ bit) | (bit << 1)
    if parent >= size:
        parent = index ^ bit
    half = bit >> 1
    left = index - half if half else None
    while half and index + half >= size:
        half >>= 1
    right = index + half if half else None
    return parent, left, right


def depth(index: int, size: int) -> int:
    """Steps from `index` up to the root of `inorder`."""
    steps = 0
    parent, _, _ = inorder(index, size)
    while parent is not None:
        steps += 1
        parent, _, _ = inorder(parent, size)
    return steps


class Lanes:
    """Ranks in parallel lanes between hosts: the first of each host are lane 0, the second ones lane 1, and so on.

    There are as many lanes as the smallest host has ranks; of a larger host the ranks that are left over belong to
    lanes too, but stand `beside` them: on their host another rank stands `in` the lane.
    """

    def __init__(self, rank: int, size: int, hosts: Hosts) -> None:
        ranks_of: dict[int, list[int]] = {}
        for other, host in enumerate(range(size) if hosts is None else hosts):
            ranks_of.setdefault(host, []).append(other)
        self.hosts = list(ranks_of.values())  # the ranks of each host, hosts in the order of their first ranks
        self.count = min(map(len, self.hosts))
        self.host = next(number for number, ranks in enumerate(self.hosts) if rank in ranks)
        self.here = self.hosts[self.host]
        self.place = self.here.index(rank)  # among the ranks of the host
        self.inside = self.place < self.count
        self.lane = self.place % self.count

    def ring(self) -> tuple[int, int]:
        """The neighbours in the lane: the next host's and the previous one's."""
        following, previous = ((self.host + step) % len(self.hosts) for step in (1, -1))
        return self.hosts[following][self.lane], self.hosts[previous][self.lane]

    def pairs(self) -> list[tuple[int, int]]:
        """The places, among the ranks of the host, of whom to send to and whom to hear from, round by round."""
        size = len(self.here)
        return [((self.place + step) % size, (self.place - step) % size) for step in range(1, size)]

    def ranks(self, host: int, lane: int) -> list[int]:
        """The ranks of a host that belong to a lane, in it first."""
        return self.hosts[host % len(self.hosts)][lane :: self.count]

    def members(self, lane: int) -> list[int]:
        """All ranks that belong to a lane, host by host."""
        return [rank for host in range(len(self.hosts)) for rank in self.ranks(host, lane)]
