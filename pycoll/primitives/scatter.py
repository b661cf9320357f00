"""Scatter: rank r gets block r of the buffer of the root."""

from __future__ import annotations

from ..schedule.hosts import Hosts
from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import rank_arithmetic, swing
from .patterns import in_parallel, scatter_down


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
    """Binomial tree: each rank receives the blocks of its subtree, keeps its own and forwards the rest.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p//2)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: an inner node needs scratch for the blocks of its subtree, at most half of Z.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from scatter_down(rank_arithmetic.binomial(rank, size, root))


@algorithm()
def ring(rank: int, size: int, root: int) -> Schedule:
    """Pipelined chain that begins with the block of the last rank; each rank keeps the last block that it receives.

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
    farther = [(root + d) % size for d in range(size - 1, distance, -1)]
    incoming = [Recv(previous, [block]) for block in [*farther, rank]] if distance > 0 else []
    outgoing = [Send(following, [block]) for block in farther]
    yield from in_parallel(incoming, [None, *outgoing])


@algorithm(listed=(4, 8))
def knomial(rank: int, size: int, root: int, k: int) -> Schedule:
    """k-nomial tree: each rank receives the blocks of its subtree, and sends k-1 parts of them on at once.

    Rounds: log(p, k)
    Messages: fan(p, k)
    Sent: (p-1)/p*Z
    Received: (p+k-2)//k/p*Z
    Cost: fan(p, k)*alpha + (p-1)/p*Z*beta
    Limits: an inner node needs scratch for the blocks of its subtree, at most Z/k rounded up to blocks.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from scatter_down(rank_arithmetic.knomial(rank, size, root, k))


@algorithm()
def bine(rank: int, size: int, root: int) -> Schedule:
    """Bine tree, as `bcast.bine`: each rank receives the blocks of its subtree, and forwards them.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: Z/2; at most 3/5*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta; at most lg(p)*alpha + 6/5*Z*beta
    Limits: for any number of ranks, as `bcast.bine`; an inner node needs scratch for the blocks of its subtree.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from scatter_down(swing.bine(rank, size, root))


@algorithm()
def two_level(rank: int, size: int, root: int, hosts: Hosts) -> Schedule:
    """Binomial tree of the hosts, then a binomial tree inside each host.

    Rounds: lg(h) + lg(p/h)
    Messages: lg(h) + lg(p/h)
    Sent: (p-1)/p*Z
    Received: max(h//2/h, (h == 1)*(p//2)/p)*Z
    Cost: (lg(h)+lg(p/h))*alpha + (p-1)/p*Z*beta
    Limits: the formulas are for p/h ranks on each of h hosts; the first rank of a host needs scratch for the blocks
        that it forwards.
    Source: as `bcast.two_level_log`.
    """
    yield from scatter_down(rank_arithmetic.domain_tree(rank, size, root, hosts))
