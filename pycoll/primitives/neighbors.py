"""Collectives between neighbors: a rank exchanges blocks only with its neighbors in the topology of the communicator.

An all-gather sends the same block to all of them, an all-to-all a block to each.
"""

from __future__ import annotations

from ..schedule.moves import Move, Recv, Round, Schedule, Send
from ..schedule.neighbors import Neighbors, check_stencil
from ..schedule.registry import NEIGHBORHOODS, register_for_neighbors


def direct(rank: int, neighbors: Neighbors) -> Schedule:
    """Each block goes directly to its destination, all of them at once.

    The messages between two ranks are listed in the order of their numbers, in which they match.
    """
    outgoing = [edge for edge in neighbors.outgoing if edge and edge.to != rank]
    incoming = sorted(edge for edge in neighbors.incoming if edge and edge.source != rank)
    moves: Round = (*(Send(edge.to, [edge]) for edge in outgoing), *(Recv(edge.source, [edge]) for edge in incoming))
    if moves:
        yield moves


def combining(rank: int, neighbors: Neighbors) -> Schedule:
    """Blocks travel dimension by dimension, and those for one direction are one message.

    In two dimensions with corners, a rank sends 4 messages in place of 8; in three, 6 in place of 26.  It needs a grid
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


for _name in NEIGHBORHOODS:
    register_for_neighbors(_name, direct)
register_for_neighbors("neighbor_alltoall", combining, needs_stencil=True)
