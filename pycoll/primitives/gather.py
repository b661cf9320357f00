"""Gather: the root gets the blocks of all ranks, in rank order."""

from __future__ import annotations

from ..schedule.hosts import Hosts
from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import rank_arithmetic, swing
from .patterns import gather_up, in_parallel


@algorithm()
def naive(rank: int, size: int, root: int) -> Schedule:
    """The root receives the blocks of the other ranks in turn.

    Rounds: p-1
    Messages: 1
    Sent: Z/p
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: the definition of MPI_Gather in the MPI standard.
    """
    if rank != root:
        yield (Send(root, [rank]),)
        return
    for peer in range(size):
        if peer != root:
            yield (Recv(peer, [peer]),)


@algorithm()
def tree(rank: int, size: int, root: int) -> Schedule:
    """Binomial tree: each rank collects the blocks of its subtree and sends them on as one message.

    Rounds: lg(p)
    Messages: 1
    Sent: (p//2)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: an inner node needs scratch for the blocks of its subtree, at most half of Z.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from gather_up(rank_arithmetic.binomial(rank, size, root))


@algorithm()
def ring(rank: int, size: int, root: int) -> Schedule:
    """Pipelined chain towards the root: each rank sends its own block first, then the blocks of the farther ranks.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Limits: needs two blocks of scratch.
    Source: Bertsekas and Tsitsiklis, Parallel and Distributed Computation (1989), section 1.3, on a
        linear array.
    """
    distance = (rank - root) % size
    previous, following = (rank - 1) % size, (rank + 1) % size
    farther = [(root + d) % size for d in range(distance + 1, size)]
    incoming = [Recv(following, [block]) for block in farther]
    outgoing = [Send(previous, [block]) for block in [rank, *farther]] if distance > 0 else []
    yield from in_parallel(incoming, outgoing)


@algorithm(listed=(4, 8))
def knomial(rank: int, size: int, root: int, k: int) -> Schedule:
    """k-nomial tree: each rank collects the blocks of its subtree from k-1 ranks at once.

    Rounds: log(p, k)
    Messages: 1
    Sent: (p+k-2)//k/p*Z
    Received: (p-1)/p*Z
    Cost: fan(p, k)*alpha + (p-1)/p*Z*beta
    Limits: an inner node needs scratch for the blocks of its subtree, at most Z/k rounded up to blocks.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from gather_up(rank_arithmetic.knomial(rank, size, root, k))


@algorithm()
def bine(rank: int, size: int, root: int) -> Schedule:
    """Bine tree, as `bcast.bine`: each rank collects the blocks of its subtree.

    Rounds: lg(p)
    Messages: 1
    Sent: Z/2; at most 3/5*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta; at most lg(p)*alpha + 6/5*Z*beta
    Limits: for any number of ranks, as `bcast.bine`; an inner node needs scratch for the blocks of its subtree.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from gather_up(swing.bine(rank, size, root))


@algorithm()
def two_level(rank: int, size: int, root: int, hosts: Hosts) -> Schedule:
    """Binomial tree inside each host, then a binomial tree of the hosts.

    Rounds: lg(h) + lg(p/h)
    Messages: 1
    Sent: max(h//2/h, (h == 1)*(p//2)/p)*Z
    Received: (p-1)/p*Z
    Cost: (lg(h)+lg(p/h))*alpha + (p-1)/p*Z*beta
    Limits: the formulas are for p/h ranks on each of h hosts; the first rank of a host needs scratch for the blocks
        that it forwards.
    Source: as `bcast.two_level_log`.
    """
    yield from gather_up(rank_arithmetic.domain_tree(rank, size, root, hosts))
