"""Trees, divisions and lanes: the arithmetic of ranks that schedules share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ..schedule.registry import Hosts


class Node(NamedTuple):
    """The position of a rank in a tree: its parent, its children, and the ranks of its subtree.

    Each level lists the children that this rank sends to in one round, each with the ranks of its subtree.
    """

    parent: int | None
    levels: Sequence[Sequence[tuple[int, Sequence[int]]]]
    subtree: Sequence[int]


def parts(ranks: range, k: int) -> list[range]:
    """Cut ranks into k parts of nearly the same length, the longer ones first; fewer if there are fewer ranks."""
    count = min(k, len(ranks))
    length, longer = divmod(len(ranks), count)
    cuts = [i * length + min(i, longer) for i in range(count + 1)]
    return [ranks[first:last] for first, last in pairwise(cuts)]


def knomial(rank: int, size: int, root: int, k: int) -> Node:
    """Return the node of `rank` in a k-nomial tree whose subtrees are ranges of ranks, for any root.

    The ranks are cut into k parts.  In the parts without the root, the first rank becomes a child of the root.  All
    parts are then cut in the same way.  So there are ceil(log_k(size)) levels, and the blocks of a subtree are
    contiguous.  Contributions can be combined in rank order without a rotation of the ranks.
    """
    parent, levels, subtree = None, [], range(size)
    top, ranks = root, range(size)
    while len(ranks) > 1:
        found = parts(ranks, k)
        children = [(part[0], part) for part in found if top not in part]
        here = next(part for part in found if rank in part)
        if rank == top:
            levels.append(children)
        elif rank == here[0] and top not in here:
            parent, levels, subtree = top, [], here
        top, ranks = top if top in here else here[0], here
    return Node(parent, levels, subtree)


def binomial(rank: int, size: int, root: int) -> Node:
    """Return the node of `rank` in a binomial tree, see `knomial`."""
    return knomial(rank, size, root, 2)


class Level(NamedTuple):
    """One level of repeated division: the part of this rank, the other parts with a source in each, and the targets."""

    mine: range
    others: list[tuple[range, int]]
    targets: list[int]


def divisions(rank: int, size: int, k: int) -> list[Level]:
    """Divide the ranks into k parts repeatedly until only `rank` is left; return the levels, the largest first.

    Ranks at the same position in all parts exchange.  The longer parts have one rank more.  Their last ranks receive
    from the first ranks of the shorter parts, which therefore have more targets.
    """
    levels = []
    ranks = range(size)
    while len(ranks) > 1:
        found = parts(ranks, k)
        mine = next(part for part in found if rank in part)
        others = [part for part in found if part != mine]
        local_rank = rank - mine[0]
        sources = [part[local_rank] if local_rank < len(part) else part[0] for part in others]
        targets = [part[local_rank] for part in others if local_rank < len(part)]
        targets += [part[-1] for part in others if local_rank == 0 and len(part) > len(mine)]
        levels.append(Level(mine, list(zip(others, sources)), targets))
        ranks = mine
    return levels


def inorder(index: int, size: int) -> tuple[int | None, int | None, int | None]:
    """Return parent, left and right child in a binary tree whose in-order traversal is 0, 1, ..., size - 1.

    0 is the root and has only a right child; odd numbers are leaves.  This is the tree of ncclGetBtree in NCCL, after
    Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
    Computing 35 (2009).
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
    """Return the number of steps from `index` up to the root of `inorder`."""
    steps = 0
    parent, _, _ = inorder(index, size)
    while parent is not None:
        steps += 1
        parent, _, _ = inorder(parent, size)
    return steps


class Lanes:
    """Parallel lanes between hosts: the first ranks of all hosts form lane 0, the second ranks lane 1, and so on.

    There are as many lanes as the smallest host has ranks.  On a larger host, the remaining ranks are assigned to lanes
    as well, but another rank of the host is in the lane: for them `inside` is false.
    """

    def __init__(self, rank: int, size: int, hosts: Hosts) -> None:
        ranks_of: dict[int, list[int]] = {}
        for other, host in enumerate(range(size) if hosts is None else hosts):
            ranks_of.setdefault(host, []).append(other)
        self.hosts = list(ranks_of.values())  # the ranks of each host; hosts are in the order of their first ranks
        self.count = min(map(len, self.hosts))
        self.host = next(number for number, ranks in enumerate(self.hosts) if rank in ranks)
        self.here = self.hosts[self.host]
        self.local_rank = self.here.index(rank)  # among the ranks of the host
        self.inside = self.local_rank < self.count
        self.lane = self.local_rank % self.count

    def ring(self) -> tuple[int, int]:
        """Return the neighbors in the lane: the ranks on the next and on the previous host."""
        following, previous = ((self.host + step) % len(self.hosts) for step in (1, -1))
        return self.hosts[following][self.lane], self.hosts[previous][self.lane]

    def pairs(self) -> list[tuple[int, int]]:
        """Return for each round the local ranks to send to and to receive from."""
        size = len(self.here)
        return [((self.local_rank + step) % size, (self.local_rank - step) % size) for step in range(1, size)]

    def ranks(self, host: int, lane: int) -> list[int]:
        """Return the ranks of a host that are assigned to a lane; the rank in the lane comes first."""
        return self.hosts[host % len(self.hosts)][lane :: self.count]

    def members(self, lane: int) -> list[int]:
        """Return all ranks that are assigned to a lane, host by host."""
        return [rank for host in range(len(self.hosts)) for rank in self.ranks(host, lane)]


def two_level(rank: int, size: int, root: int, hosts: Hosts) -> Node:
    """Return the node of `rank` in a binomial tree of hosts, each with a binomial tree of its ranks.

    The root leads its host; on other hosts, the first rank leads.  A leader sends to other hosts first.
    """
    lanes = Lanes(rank, size, hosts)
    leaders = [root if root in ranks else ranks[0] for ranks in lanes.hosts]
    here, lead = lanes.here, leaders[lanes.host]
    inside = binomial(lanes.local_rank, len(here), here.index(lead))
    levels = [[(here[child], [here[i] for i in members]) for child, members in level] for level in inside.levels]
    if rank != lead:
        parent = None if inside.parent is None else here[inside.parent]
        return Node(parent, levels, [here[i] for i in inside.subtree])

    def ranks_on(numbers: Sequence[int]) -> list[int]:
        return [other for number in numbers for other in lanes.hosts[number]]

    between = binomial(lanes.host, len(leaders), leaders.index(root))
    far = [[(leaders[child], ranks_on(below)) for child, below in level] for level in between.levels]
    parent = None if between.parent is None else leaders[between.parent]
    return Node(parent, [*far, *levels], ranks_on(between.subtree))
