"""Collectives between neighbors: a rank exchanges blocks only with its neighbors in the topology of the communicator.

An all-gather sends the same block to all of them, an all-to-all a block to each.
"""

from __future__ import annotations

from ..schedule.moves import Recv, Round, Schedule, Send
from ..schedule.neighbors import Neighbors
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


for _name in NEIGHBORHOODS:
    register_for_neighbors(_name, direct)
