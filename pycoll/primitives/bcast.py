"""Broadcast: every rank gets the vector of the root."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule.cuts import per_rank, per_segment
from ..schedule.hosts import Hosts
from ..schedule.moves import Blocks, Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import allgather, rank_arithmetic, scatter, swing
from .patterns import broadcast_down, in_parallel, one_to_all
from .rank_arithmetic import Lanes


@algorithm()
def naive(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """The root sends the whole vector to each rank in turn.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)*Z
    Received: Z
    Cost: (p-1)*alpha + (p-1)*Z*beta
    Limits: the link of the root carries all the data.
    Source: the definition of MPI_Bcast in the MPI standard.
    """
    yield from one_to_all(rank, size, root, blocks)


@algorithm()
def tree(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """Binomial tree: each rank that has the vector sends it on, so the number of such ranks doubles in each round.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: Z
    Cost: lg(p)*alpha + lg(p)*Z*beta
    Limits: best for short vectors; the root sends the whole vector lg(p) times.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from broadcast_down(rank_arithmetic.binomial(rank, size, root), blocks)


@algorithm(cut=per_segment)
def ring(rank: int, size: int, root: int, segments: int) -> Schedule:
    """Pipelined chain: each rank receives a segment while it forwards the one before.

    Rounds: S+p-2
    Messages: S
    Sent: Z
    Received: Z
    Cost: (S+p-2)*alpha + (S+p-2)/S*Z*beta
    Limits: best for long vectors cut into many segments.
    Source: van de Geijn and Watts, "SUMMA", Concurrency: Practice and Experience 9 (1997).
    """
    yield from chain(rank, [(root + distance) % size for distance in range(size)], segments)


@algorithm(listed=(4, 8))
def knomial(rank: int, size: int, root: int, k: int, blocks: Blocks = (0,)) -> Schedule:
    """k-nomial tree: each rank that has the vector sends it to k-1 ranks at once, so their number grows k times.

    Rounds: log(p, k)
    Messages: fan(p, k)
    Sent: fan(p, k)*Z
    Received: Z
    Cost: fan(p, k)*alpha + fan(p, k)*Z*beta
    Limits: best for short vectors on networks that send several messages at once; the formula adds up their latencies.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from broadcast_down(rank_arithmetic.knomial(rank, size, root, k), blocks)


@algorithm(cut=per_segment)
def two_level(rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Pipelined chain in which the ranks of each host are consecutive, with the host of the root first.

    Rounds: S+p-2
    Messages: S
    Sent: Z
    Received: Z
    Cost: (S+p-2)*alpha + (S+p-2)/S*Z*beta
    Limits: as `ring`; the link of a host carries at most Z in each direction, for any placement of ranks.
    Source: as `ring`.
    """
    ranks_of = Lanes(root, size, hosts)
    others = [ranks for ranks in ranks_of.hosts if ranks is not ranks_of.here]
    own = [other for other in ranks_of.here if other != root]
    yield from chain(rank, [root, *own, *(other for ranks in others for other in ranks)], segments)


def chain(rank: int, order: Sequence[int], segments: int) -> Schedule:
    """Send segments down a chain of ranks."""
    index = order.index(rank)
    incoming = [Recv(order[index - 1], [s]) for s in range(segments)] if index > 0 else []
    outgoing = [Send(order[index + 1], [s]) for s in range(segments)] if index + 1 < len(order) else []
    yield from in_parallel(incoming, [None, *outgoing])


@algorithm(cut=per_rank)
def scatter_allgather(rank: int, size: int, root: int) -> Schedule:
    """Van de Geijn: a binomial scatter of the parts of the vector, then a ring all-gather.

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


@algorithm()
def bine(rank: int, size: int, root: int, blocks: Blocks = (0,)) -> Schedule:
    """Bine tree: as `tree`, but with partners at distances 1, -1, 3, -5, 11, ..., the farthest first.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: Z
    Cost: lg(p)*alpha + lg(p)*Z*beta
    Limits: best for short vectors; unless p is a power of two, some neighbors form pairs, in which one forwards to the
        other.
    Source: De Sensi et al., "Bine trees", SC 2025.  The paper has powers of two; the pairs are an addition.
    """
    yield from broadcast_down(swing.bine(rank, size, root), blocks)


@algorithm()
def two_level_log(rank: int, size: int, root: int, hosts: Hosts, blocks: Blocks = (0,)) -> Schedule:
    """Binomial tree of the hosts, then a binomial tree inside each host.

    Rounds: lg(h) + lg(p/h)
    Messages: lg(h) + lg(p/h)
    Sent: (lg(h)+lg(p/h))*Z
    Received: Z
    Cost: (lg(h)+lg(p/h))*alpha + (lg(h)+lg(p/h))*Z*beta
    Limits: best for short vectors; the formulas are for p/h ranks on each of h hosts.  The link of the host of the root
        carries lg(h)*Z.
    Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
        performance", IPDPS 2000.
    """
    yield from broadcast_down(rank_arithmetic.domain_tree(rank, size, root, hosts), blocks)


@algorithm(levels=("node", "numa"))
def hierarchical(rank: int, size: int, root: int, hosts: Hosts) -> Schedule:
    """As `two_level_log`, with a binomial tree at each level of domains: hosts, their sockets, memory, caches.

    Rounds: lg(h) + lg(p/h)
    Messages: lg(h) + lg(p/h)
    Sent: (lg(h)+lg(p/h))*Z
    Received: Z
    Cost: (lg(h)+lg(p/h))*alpha + (lg(h)+lg(p/h))*Z*beta
    Limits: best for short vectors; the formulas are for p/h ranks on each of h hosts, without smaller domains.  Each
        domain receives the vector once.
    Source: as `two_level_log`, which has two levels of any number.
    """
    yield from two_level_log(rank, size, root, hosts)
