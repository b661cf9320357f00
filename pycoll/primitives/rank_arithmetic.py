"""Trees, divisions and lanes: the arithmetic of ranks that schedules share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ..schedule.hosts import Hosts, without_domains


class TreeNode(NamedTuple):
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


def knomial(rank: int, size: int, root: int, k: int) -> TreeNode:
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
    return TreeNode(parent, levels, subtree)


def binomial(rank: int, size: int, root: int) -> TreeNode:
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
        for other, host in enumerate(range(size) if hosts is None else without_domains(hosts)):
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


def paths(size: int, hosts: Hosts) -> list[tuple[int, ...]]:
    """Return the domains of each rank, the largest first."""
    given: Sequence[int | tuple[int, ...]] = range(size) if hosts is None else hosts
    return [each if isinstance(each, tuple) else (each,) for each in given]


def domain_tree(rank: int, size: int, root: int, hosts: Hosts) -> TreeNode:
    """Return the node of `rank` in a binomial tree of hosts, each with a tree of its domains, and so on to its ranks.

    The root leads its domains; in other domains, the first rank leads.  A leader sends to the largest domains first.
    """
    return _domain_node(rank, range(size), root, paths(size, hosts), 0)


def _domain_node(rank: int, ranks: Sequence[int], lead: int, domains: list[tuple[int, ...]], level: int) -> TreeNode:
    """Return the node of `rank` in the tree of the ranks of one domain, which `lead` leads."""
    groups = _groups(ranks, domains, level)
    leaders = [lead if lead in group else group[0] for group in groups]
    here = next(number for number, group in enumerate(groups) if rank in group)
    inside = TreeNode(None, [], [rank])
    if len(groups[here]) > 1:
        inside = _domain_node(rank, groups[here], leaders[here], domains, level + 1)
    if rank != leaders[here]:
        return inside

    def ranks_in(numbers: Sequence[int]) -> list[int]:
        return [other for number in numbers for other in groups[number]]

    between = binomial(here, len(groups), leaders.index(lead))
    far = [[(leaders[child], ranks_in(below)) for child, below in children] for children in between.levels]
    parent = None if between.parent is None else leaders[between.parent]
    return TreeNode(parent, [*far, *inside.levels], ranks_in(between.subtree))


def _groups(ranks: Sequence[int], domains: list[tuple[int, ...]], level: int) -> list[list[int]]:
    """Return the ranks of each domain at a level, in the order of their first ranks; below all levels, each rank."""
    found: dict[int, list[int]] = {}
    for rank in ranks:
        found.setdefault(domains[rank][level] if level < len(domains[rank]) else rank, []).append(rank)
    return list(found.values())


def _splitting(domains: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Leave out the levels that split no domain of the level above."""
    counts = [len({each[:level] for each in domains}) for level in range(len(domains[0]) + 1)]
    kept = [level for level in range(len(domains[0])) if counts[level + 1] > counts[level]]
    return [tuple(each[level] for level in kept) for each in domains]


def _coordinates(
    ranks: Sequence[int], domains: list[tuple[int, ...]], before: tuple[int, ...]
) -> dict[tuple[int, ...], int]:
    """Return the rank at all coordinates of a grid: numbers of its domains in the domain above, and of the rank."""
    found: dict[tuple[int, ...], int] = {}
    for number, group in enumerate(_groups(ranks, domains, len(before))):
        coordinates = (*before, number)
        found |= _coordinates(group, domains, coordinates) if len(before) < len(domains[0]) else {coordinates: group[0]}
    return found


class Grid:
    """The ranks in a grid: a dimension for each level that splits domains, one for the ranks of the smallest domains.

    Positions count along the first dimension first.  A ring in each dimension, the first one first, is an all-gather.
    If domains of a level differ in the number of their parts, there is one dimension, in which domains are consecutive.
    """

    def __init__(self, rank: int, size: int, hosts: Hosts) -> None:
        domains = _splitting(paths(size, hosts))
        at = _coordinates(range(size), domains, ())
        self.sizes: list[int] = [1 + max(numbers) for numbers in zip(*at)]
        if math.prod(self.sizes) != size:
            at = {(number,): other for number, other in enumerate(at.values())}
            self.sizes = [size]
        self.strides: list[int] = [math.prod(self.sizes[:level]) for level in range(len(self.sizes))]
        position = {self._position(coordinates): other for coordinates, other in at.items()}
        self.ranks = [position[number] for number in range(size)]
        self.here = next(coordinates for coordinates, other in at.items() if other == rank)

    def _position(self, coordinates: Sequence[int]) -> int:
        return sum(each * stride for each, stride in zip(coordinates, self.strides))

    def neighbor(self, level: int, step: int) -> int:
        """Return the rank that is so many steps away in one dimension."""
        moved = (self.here[level] + step) % self.sizes[level]
        return self.ranks[self._position(self.here) + (moved - self.here[level]) * self.strides[level]]

    def lane(self, level: int, coordinate: int) -> range:
        """Return the positions with this coordinate in a dimension: any before it, and those of this rank after it."""
        first = (coordinate % self.sizes[level]) * self.strides[level]
        first += sum(each * stride for each, stride in list(zip(self.here, self.strides))[level + 1 :])
        return range(first, first + self.strides[level])
