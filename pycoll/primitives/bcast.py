"""Broadcast: the root's vector goes to every rank."""

from __future__ import annotations

from ..schedule import Blocks, Recv, Schedule, Send, algorithm, lanes, per_rank, per_segment
from . import allgather, scatter
from .topology import binomial


@algorithm()
def naive(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """The root sends the whole vector to each rank in turn.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)*Z
    Received: Z
    Cost: (p-1)*alpha + (p-1)*Z*beta
    Limits: the root's link carries everything.
    Source: the definition of MPI_Bcast in the MPI standard.
    """
    if rank != root:
        yield (Recv(root, blocks),)
        return
    for peer in range(size):
        if peer != root:
            yield (Send(peer, blocks),)


@algorithm()
def tree(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """Down a binomial tree: who has the vector hands it on, so that their number doubles each round.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: Z
    Cost: lg(p)*alpha + lg(p)*Z*beta
    Limits: best for short vectors; long ones cross the root's link lg(p) times.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    node = binomial(rank, size, root)
    if node.parent is not None:
        yield (Recv(node.parent, blocks),)
    for child, _ in node.children:
        yield (Send(child, blocks),)


@algorithm(cut=per_segment)
def ring(rank: int, size: int, root: int, segments: int) -> Schedule:
    """A pipelined chain: each rank receives a segment while it hands on the one before.

    Rounds: S+p-2
    Messages: S
    Sent: Z
    Received: Z
    Cost: (S+p-2)*alpha + (S+p-2)/S*Z*beta
    Limits: best for long vectors cut into many segments.
    Source: van de Geijn and Watts, "SUMMA", Concurrency: Practice and Experience 9 (1997).
    """
    distance = (rank - root) % size
    previous, following = (rank - 1) % size, (rank + 1) % size
    incoming = [Recv(previous, [s]) for s in range(segments)] if distance > 0 else []
    outgoing = [Send(following, [s]) for s in range(segments)] if distance < size - 1 else []
    yield from lanes(incoming, [None, *outgoing])


@algorithm(cut=per_rank)
def scatter_allgather(rank: int, size: int, root: int) -> Schedule:
    """Van de Geijn: a binomial scatter of the vector's parts, then a ring all-gather of them.

    Rounds: lg(p)+p-1
    Messages: lg(p)+p-1
    Sent: 2*(p-1)/p*Z
    Received: (p//2+p-1)/p*Z
    Cost: (lg(p)+p-1)*alpha + 2*(p-1)/p*Z*beta
    Limits: a rank other than the root receives some parts a second time.
    Source: Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC 1994.
    """
    yield from scatter.tree(rank, size, root)
    yield from allgather.ring(rank, size)
