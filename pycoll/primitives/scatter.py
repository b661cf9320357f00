"""Scatter: block r of the root's buffer goes to rank r."""

from __future__ import annotations

from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm, lanes
from .topology import binomial


@algorithm()
def naive(rank: int, size: int, root: int) -> Schedule:
    """The root sends each rank its block in turn.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: Z/p
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: the definition of MPI_Scatter in the MPI standard.
    """
    if rank != root:
        yield (Recv(root, [rank]),)
        return
    for peer in range(size):
        if peer != root:
            yield (Send(peer, [peer]),)


@algorithm()
def tree(rank: int, size: int, root: int) -> Schedule:
    """Down a binomial tree: a rank receives its subtree's blocks and hands on what is not its own.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p//2)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: an inner rank needs scratch for its subtree's blocks, at most half of Z.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    node = binomial(rank, size, root)
    if node.parent is not None:
        yield (Recv(node.parent, node.subtree),)
    for child, ranks in node.children:
        yield (Send(child, ranks),)


@algorithm()
def ring(rank: int, size: int, root: int) -> Schedule:
    """A pipelined chain that starts with the farthest rank's block; each rank keeps the last it gets.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Limits: two blocks of scratch.
    Source: Bertsekas and Tsitsiklis, Parallel and Distributed Computation (1989), section 1.3, on a
        linear array.
    """
    distance = (rank - root) % size
    previous, following = (rank - 1) % size, (rank + 1) % size
    farther = [(root + d) % size for d in range(size - 1, distance, -1)]
    incoming = [Recv(previous, [block]) for block in [*farther, rank]] if distance > 0 else []
    outgoing = [Send(following, [block]) for block in farther]
    yield from lanes(incoming, [None, *outgoing])
