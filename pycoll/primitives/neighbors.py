"""Collectives between neighbors: a rank exchanges blocks only with its neighbors in the topology of the communicator.

An all-gather sends the same block to all of them, an all-to-all a block to each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ..schedule.hosts import Hosts, without_domains
from ..schedule.moves import Block, Move, Recv, Schedule, Send
from ..schedule.neighbors import Edge, Neighbors, check_stencil
from ..schedule.registry import NEIGHBORHOODS, counts_of, register_for_neighbors

BlockOf = Callable[[Edge], Block]  # names the block that goes along an edge


def direct(rank: int, neighbors: Neighbors, block_of: BlockOf) -> Schedule:
    """Each block goes directly to its destination, all of them at once.

    The messages between two ranks are listed in the order of their numbers, in which they match.  Of several edges
    between two ranks, an all-gather uses one.
    """
    outgoing = [edge for edge in neighbors.outgoing if edge and edge.to != rank]
    incoming = sorted(edge for edge in neighbors.incoming if edge and edge.source != rank)
    sends = dict.fromkeys(Send(edge.to, (block_of(edge),)) for edge in outgoing)
    receives = dict.fromkeys(Recv(edge.source, (block_of(edge),)) for edge in incoming)
    if sends or receives:
        yield (*sends, *receives)


def combining(rank: int, neighbors: Neighbors) -> Schedule:
    """Blocks travel dimension by dimension, and those for one direction are one message.

    In two dimensions with corners, a rank sends 4 messages instead of 8; in three, 6 instead of 26.  It needs a grid
    or a communicator of `Cartcomm.Create_neighborhood`, whose ranks know which blocks pass through them, and blocks of
    equal lengths.

    Source: Traff, Luebbe, Rougier and Hunold, "Isomorphic, sparse MPI-like collective communication operations for
        parallel stencil computations", EuroMPI 2015.
    """
    stencil = neighbors.stencil
    check_stencil(stencil)
    assert stencil
    for dimension in range(len(stencil.dims)):
        sends, receives = list[Move](), list[Move]()
        for step in sorted({offset[dimension] for offset in stencil.offsets}):
            to, source = (stencil.along(rank, dimension, way * step) for way in (1, -1))
            if to not in (-1, rank) and (blocks := stencil.on_the_way(rank, dimension, step)):
                sends.append(Send(to, blocks))
            if source not in (-1, rank) and (blocks := stencil.on_the_way(source, dimension, step)):
                receives.append(Recv(source, blocks))
        if moves := (*sends, *receives):
            yield moves


def two_level(rank: int, size: int, hosts: Hosts, neighbors: Neighbors, block_of: BlockOf) -> Schedule:
    """Between two hosts, one message carries the blocks of all their ranks in each direction.

    The ranks of a host tell each other the lengths of their blocks.  Each one sends its blocks for another host to the
    rank that carries them, with its blocks for the ranks here; the carriers of the two hosts exchange theirs, and pass
    them on.  Different ranks of a host are carriers for different hosts.  The block of an all-gather goes once to each
    host that needs it.

    Source: Collom, Li and Bienz, "Optimizing irregular communication with neighborhood collectives and locality-aware
        parallelism", SC 2023 workshops, and MPI Advance.
    """
    where = without_domains(hosts or range(size))
    ranks_of = {host: [other for other, its in enumerate(where) if its == host] for host in where}
    others = [other for other in ranks_of[where[rank]] if other != rank]
    if others:
        yield (*(Send(to, [counts_of(rank)]) for to in others), *(Recv(to, [counts_of(to)]) for to in others))

    def carrier(host: int, other: int) -> int:
        return ranks_of[host][other % len(ranks_of[host])]

    def stops(edge: Edge) -> tuple[int, int, int, int]:
        one, other = where[edge.source], where[edge.to]
        if one == other:
            return edge.source, edge.to, edge.to, edge.to
        return edge.source, carrier(one, other), carrier(other, one), edge.to

    paths = {edge: stops(edge) for edge in sorted({edge for each in neighbors.here for edge in each})}
    for step in range(3):
        sends, receives = defaultdict[int, dict[Block, None]](dict), defaultdict[int, dict[Block, None]](dict)
        for edge, path in paths.items():
            start, end = path[step : step + 2]
            if start == rank != end:
                sends[end][block_of(edge)] = None
            elif end == rank != start:
                receives[start][block_of(edge)] = None
        if sends or receives:
            yield (
                *(Send(to, tuple(blocks)) for to, blocks in sends.items()),
                *(Recv(source, tuple(blocks)) for source, blocks in receives.items()),
            )


for _name in NEIGHBORHOODS:
    register_for_neighbors(_name, direct)
    register_for_neighbors(_name, two_level, needs_counts=True)
register_for_neighbors("neighbor_alltoall", combining, needs_stencil=True)
