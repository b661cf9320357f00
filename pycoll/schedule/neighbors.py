"""Neighborhoods: from which ranks a rank receives, and to which it sends, in a communicator with a topology."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple


class Edge(NamedTuple):
    """An edge of the topology, and the name of the block that is sent along it.

    Of several edges from one rank to another, `number` says which one this is.
    """

    source: int
    to: int
    number: int


class Stencil(NamedTuple):
    """A grid, whose last dimension varies fastest, and the offsets of the neighbors, the same for all ranks."""

    dims: tuple[int, ...]
    periods: tuple[bool, ...]
    offsets: tuple[tuple[int, ...], ...]

    def moved(self, rank: int, offset: Sequence[int], sign: int = 1) -> int:
        """Return the rank at this offset; -1 where the grid ends."""
        found, stride = 0, 1
        for side, periodic, step in zip(self.dims[::-1], self.periods[::-1], offset[::-1]):
            rank, coordinate = divmod(rank, side)
            coordinate += sign * step
            if not (periodic or 0 <= coordinate < side):
                return -1
            found, stride = found + coordinate % side * stride, stride * side
        return found

    def along(self, rank: int, dimension: int, step: int) -> int:
        """Return the rank that is so many steps away in one dimension; -1 where the grid ends."""
        return self.moved(rank, [step * (each == dimension) for each in range(len(self.dims))])

    def on_the_way(self, rank: int, dimension: int, step: int) -> list[Edge]:
        """Return the edges whose blocks `rank` sends so many steps in a dimension, if they pass one after the other."""
        found = []
        for index, offset in enumerate(self.offsets):
            passed = [each * (before < dimension) for before, each in enumerate(offset)]
            source = self.moved(rank, passed, -1)
            to = self.moved(source, offset) if source >= 0 else -1
            if offset[dimension] == step and to >= 0 and to != source:
                number = [self.moved(source, other) for other in self.offsets[:index]].count(to)
                found.append(Edge(source, to, number))
        return found


class Neighbors(NamedTuple):
    """The edges of one rank, in the order of the blocks in its buffers; None where a grid ends.

    `stencil` is known if the neighbors of all ranks are at the same offsets in a grid, also where that is the grid of
    the communicator itself.  `here` are the edges of each rank of the same host, for algorithms that need them.
    """

    incoming: tuple[Edge | None, ...]
    outgoing: tuple[Edge | None, ...]
    stencil: Stencil | None = None
    here: tuple[tuple[Edge, ...], ...] = ()

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that go out or come in, each once, in an order that all ranks know."""
        return tuple(sorted({edge for edge in (*self.incoming, *self.outgoing) if edge}))


def neighbors(rank: int, sources: Sequence[int], destinations: Sequence[int], grid: bool = False) -> Neighbors:
    """Return the edges of a rank; a negative number is not a rank.

    Between two ranks, the first edge of one is the first edge of the other, and so on.  In a grid, the neighbors come
    in pairs: what a rank sends in the negative direction arrives from the positive one, as MPI 4.1 defines it also
    where both are the same rank.
    """
    order = [index ^ 1 if grid else index for index in range(len(sources))]  # in which the sources send
    arriving = dict(zip(order, _numbered([sources[index] for index in order])))
    incoming = [Edge(source, rank, number) if source >= 0 else None for _, (source, number) in sorted(arriving.items())]
    outgoing = [Edge(rank, to, number) if to >= 0 else None for to, number in _numbered(destinations)]
    return Neighbors(tuple(incoming), tuple(outgoing))


def _numbered(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return each rank with the number of times that it came before."""
    count: Counter[int] = Counter()
    numbered = []
    for rank in ranks:
        numbered.append((rank, count[rank]))
        count[rank] += 1
    return numbered


def grid_neighbors(dims: Sequence[int], periods: Sequence[bool]) -> list[Neighbors]:
    """Return the edges of each rank of a grid, whose last dimension varies fastest."""
    grid = list(product(*map(range, dims)))
    ranks = {coords: rank for rank, coords in enumerate(grid)}

    def beside(coords: tuple[int, ...], dimension: int, step: int) -> int:
        moved = list(coords)
        moved[dimension] += step
        if periods[dimension]:
            moved[dimension] %= dims[dimension]
        return ranks.get(tuple(moved), -1)

    found = []
    for rank, coords in enumerate(grid):
        around = [beside(coords, dimension, step) for dimension in range(len(dims)) for step in (-1, 1)]
        found.append(neighbors(rank, around, around, grid=True))
    return found


def stencil_neighbors(rank: int, stencil: Stencil) -> Neighbors:
    """Return the edges of a rank in a grid with these offsets; where the grid ends, there are none."""
    sources, destinations = (
        [other for offset in stencil.offsets if (other := stencil.moved(rank, offset, sign)) >= 0] for sign in (-1, 1)
    )
    return neighbors(rank, sources, destinations)._replace(stencil=stencil)


def around(dims: Sequence[int], periods: Sequence[bool]) -> Stencil:
    """Return the stencil of a grid: the two neighbors in each dimension, as MPI_Cart_create defines them."""
    sides = [
        tuple(step * (each == dimension) for each in range(len(dims)))
        for dimension in range(len(dims))
        for step in (-1, 1)
    ]
    return Stencil(tuple(dims), tuple(map(bool, periods)), tuple(sides))


@lru_cache
def symmetric(stencil: Stencil) -> bool:
    """Return whether each rank receives from the ranks to which it sends, along as many edges."""
    back = Counter(tuple(-step for step in offset) for offset in stencil.offsets)
    return back == Counter(stencil.offsets)


@lru_cache
def connected(stencil: Stencil) -> bool:
    """Return whether edges lead from each rank to each other one, perhaps through others, in any direction."""
    found, new = {0}, [0]
    while new:
        rank = new.pop()
        beside = {stencil.moved(rank, offset, sign) for offset in stencil.offsets for sign in (-1, 1)} - found - {-1}
        found |= beside
        new += beside
    return len(found) == math.prod(stencil.dims)


@lru_cache
def without_neighbors(stencil: Stencil) -> int | None:
    """Return the first rank that has no neighbors; None if all have some."""
    for rank in range(math.prod(stencil.dims)):
        if not any(stencil.moved(rank, offset, sign) >= 0 for offset in stencil.offsets for sign in (-1, 1)):
            return rank
    return None


def check_stencil(stencil: Stencil | None) -> None:
    """Raise ValueError unless the ranks know which blocks pass through them, and how long these are."""
    if stencil is None:
        raise ValueError("algorithm='combining' needs a grid, or a communicator of Cartcomm.Create_neighborhood")
    if (alone := without_neighbors(stencil)) is not None:
        raise ValueError(
            f"algorithm='combining': rank {alone} has no neighbors, so it does not know the length of the blocks that "
            "pass through it"
        )


def on_hosts(everyone: Sequence[Neighbors], hosts: Sequence[int]) -> list[Neighbors]:
    """Return the edges of each rank together with those of the other ranks on its host."""
    here = {host: tuple(each.edges for each, other in zip(everyone, hosts) if other == host) for host in set(hosts)}
    return [each._replace(here=here[host]) for each, host in zip(everyone, hosts)]


def graph_neighbors(size: int, edges: Sequence[tuple[int, int]]) -> list[Neighbors]:
    """Return the edges of each rank of a graph, in the order in which they are given: from one rank to another."""
    return [
        neighbors(rank, [source for source, to in edges if to == rank], [to for source, to in edges if source == rank])
        for rank in range(size)
    ]
