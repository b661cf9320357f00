"""Reduce: the vectors of all ranks are combined element by element; the root gets the result."""

from __future__ import annotations

from ..schedule.cuts import per_rank, per_segment
from ..schedule.hosts import Hosts
from ..schedule.moves import AFTER, BEFORE, Blocks, Reduce, Schedule, Send
from ..schedule.registry import algorithm
from . import gather, rank_arithmetic, swing
from .patterns import in_parallel, recursive_multiplying, reduce_up, reversed_allgather


@algorithm()
def naive(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """The root receives and combines the vectors of all ranks in turn: first the lower ranks, then the higher ranks.

    Rounds: p-1
    Messages: 1
    Sent: Z
    Received: (p-1)*Z
    Cost: (p-1)*alpha + (p-1)*Z*beta + (p-1)*Z*gamma
    Limits: the link of the root carries all the data, and the root does all the computation.
    Source: the definition of MPI_Reduce in the MPI standard.
    """
    if rank != root:
        yield (Send(root, blocks),)
        return
    for peer in range(root - 1, -1, -1):
        yield (Reduce(peer, blocks, BEFORE),)
    for peer in range(root + 1, size):
        yield (Reduce(peer, blocks, AFTER),)


@algorithm()
def tree(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """Binomial tree whose subtrees are ranges of ranks, so that rank order is kept for any root.

    Rounds: lg(p)
    Messages: 1
    Sent: Z
    Received: lg(p)*Z
    Cost: lg(p)*alpha + lg(p)*Z*beta + lg(p)*Z*gamma
    Limits: best for short vectors.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).  Rank order is kept without the usual extra message from
        rank 0, because subtrees are ranges of ranks (see `rank_arithmetic.binomial`).
    """
    yield from reduce_up(rank_arithmetic.binomial(rank, size, root), rank, blocks)


@algorithm(cut=per_segment, ordered=False)
def ring(rank: int, size: int, root: int, segments: int) -> Schedule:
    """Pipelined chain towards the root: each rank receives and combines a segment while it sends the one before.

    Rounds: S+p-2
    Messages: S
    Sent: Z
    Received: Z
    Cost: (S+p-2)*alpha + (S+p-2)/S*Z*beta + (S+p-2)/S*Z*gamma
    Limits: only for commutative operations; best for long vectors.
    Source: Worringen, "Pipelining and overlapping for MPI collective operations", LCN 2003.
    """
    distance = (rank - root) % size
    previous, following = (rank - 1) % size, (rank + 1) % size
    incoming = [Reduce(following, [s], AFTER) for s in range(segments)] if distance < size - 1 else []
    outgoing = [Send(previous, [s]) for s in range(segments)] if distance > 0 else []
    yield from in_parallel(incoming, [None, *outgoing])


@algorithm(listed=(4, 8))
def knomial(rank: int, size: int, root: int, k: int, blocks: Blocks = (0,)) -> Schedule:
    """k-nomial tree whose subtrees are ranges of ranks: each rank combines the vectors of k-1 ranks at once.

    Rounds: log(p, k)
    Messages: 1
    Sent: Z
    Received: fan(p, k)*Z
    Cost: fan(p, k)*alpha + fan(p, k)*Z*beta + fan(p, k)*Z*gamma
    Limits: best for short vectors; needs scratch for the vectors of k-1 ranks.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from reduce_up(rank_arithmetic.knomial(rank, size, root, k), rank, blocks)


@algorithm(cut=per_rank, ordered=False)
def rabenseifner(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter by recursive halving, then binomial gather of the parts.

    Rounds: 2*lg(p)
    Messages: lg(p)+1
    Sent: (p-1+p//2)/p*Z
    Received: 2*(p-1)/p*Z; at most 5/2*(p-1)/p*Z
    Cost: 2*lg(p)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma;
        at most (3*lg(p)-1)*alpha + 3*(p-1)/p*Z*beta + 2*(p-1)/p*Z*gamma
    Limits: only for commutative operations.
    Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    yield from reversed_allgather(recursive_multiplying(rank, size, 2))
    yield from gather.tree(rank, size, root)


@algorithm(ordered=False)
def bine(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """Bine tree, the reverse of `bcast.bine`: the nearest partners first.

    Rounds: lg(p)
    Messages: 1
    Sent: Z
    Received: lg(p)*Z
    Cost: lg(p)*alpha + lg(p)*Z*beta + lg(p)*Z*gamma
    Limits: only for commutative operations; best for short vectors; for any number of ranks, as `bcast.bine`.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from reduce_up(swing.bine(rank, size, root), rank, blocks)


@algorithm(ordered=False)
def two_level(rank: int, size: int, root: int, hosts: Hosts, blocks: Blocks = (0,)) -> Schedule:
    """Binomial tree inside each host, then a binomial tree of the hosts.

    Rounds: lg(h) + lg(p/h)
    Messages: 1
    Sent: Z
    Received: (lg(h)+lg(p/h))*Z
    Cost: (lg(h)+lg(p/h))*alpha + (lg(h)+lg(p/h))*Z*beta + (lg(h)+lg(p/h))*Z*gamma
    Limits: only for commutative operations; best for short vectors; the formulas are for p/h ranks on each of h hosts.
    Source: as `bcast.two_level_log`.
    """
    yield from reduce_up(rank_arithmetic.domain_tree(rank, size, root, hosts), rank, blocks)


@algorithm(ordered=False, levels=("node", "numa"))
def hierarchical(rank: int, size: int, root: int, hosts: Hosts) -> Schedule:
    """As `two_level`, with a binomial tree at each level of domains: hosts, their sockets, memory, caches.

    Rounds: lg(h) + lg(p/h)
    Messages: 1
    Sent: Z
    Received: (lg(h)+lg(p/h))*Z
    Cost: (lg(h)+lg(p/h))*alpha + (lg(h)+lg(p/h))*Z*beta + (lg(h)+lg(p/h))*Z*gamma
    Limits: only for commutative operations; best for short vectors; the formulas are for p/h ranks on each of h hosts,
        without smaller domains.  Each domain sends one vector.
    Source: as `bcast.hierarchical`.
    """
    yield from two_level(rank, size, root, hosts)
