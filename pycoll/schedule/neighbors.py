"""Neighborhoods: from which ranks a rank receives, and to which it sends, in a communicator with a topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple


class Edge(NamedTuple):
    """An edge of the topology, and the name of the block that is sent along it.

    Of several edges from one rank to another, `number` says which one this is.
    """

    source: int
    to: int
    number: int


class Neighbors(NamedTuple):
    """The edges of one rank, in the order of the blocks in its buffers; None where a grid ends."""

    incoming: tuple[Edge | None, ...]
    outgoing: tuple[Edge | None, ...]


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
    places = list(product(*map(range, dims)))
    ranks = {place: rank for rank, place in enumerate(places)}

    def beside(place: tuple[int, ...], dimension: int, step: int) -> int:
        moved = list(place)
        moved[dimension] += step
        if periods[dimension]:
            moved[dimension] %= dims[dimension]
        return ranks.get(tuple(moved), -1)

    found = []
    for rank, place in enumerate(places):
        around = [beside(place, dimension, step) for dimension in range(len(dims)) for step in (-1, 1)]
        found.append(neighbors(rank, around, around, grid=True))
    return found


def graph_neighbors(size: int, edges: Sequence[tuple[int, int]]) -> list[Neighbors]:
    """Return the edges of each rank of a graph, in the order in which they are given: from one rank to another."""
    return [
        neighbors(rank, [source for source, to in edges if to == rank], [to for source, to in edges if source == rank])
        for rank in range(size)
    ]
