"""Reduce-scatter: the vectors of all ranks are combined element by element; rank r gets block r of the result."""

from __future__ import annotations

from ..schedule.cuts import around, halves
from ..schedule.hosts import Hosts
from ..schedule.moves import Reduce, Schedule, Send
from ..schedule.registry import algorithm
from . import allgather, patterns, reduce, scatter
from .patterns import reversed_allgather
from .rank_arithmetic import Lanes


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Naive reduce to rank 0, then naive scatter from it.

    Rounds: 2*(p-1)
    Messages: p-1
    Sent: Z
    Received: (p-1)*Z
    Cost: 2*(p-1)*alpha + ((p-1) + (p-1)/p)*Z*beta + (p-1)*Z*gamma
    Limits: the link of rank 0 carries all the data.
    Source: the definition of MPI_Reduce_scatter_block in the MPI standard.
    """
    yield from reduce.naive(rank, size, 0, range(size))
    yield from scatter.naive(rank, size, 0)


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """Binomial reduce to rank 0, then binomial scatter from it.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Sent: Z + (p//2-1)/p*Z
    Received: lg(p)*Z
    Cost: 2*lg(p)*alpha + (lg(p) + (p-1)/p)*Z*beta + lg(p)*Z*gamma
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from reduce.tree(rank, size, 0, range(size))
    yield from scatter.tree(rank, size, 0)


@algorithm(ordered=False, symmetry=around)
def ring(rank: int, size: int) -> Schedule:
    """Partial results go around the ring; each rank combines them with its own contribution and forwards them.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; needs two blocks of scratch.
    Source: Patarasuk and Yuan, JPDC 69 (2009).
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield Send(right, [(rank - step) % size]), Reduce(left, [(rank - step - 1) % size])


@algorithm(ordered=False, symmetry=halves)
def recursive_halving(rank: int, size: int) -> Schedule:
    """Each round halves the set of ranks with which a rank exchanges, and the set of blocks that it combines.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z; at most 5/3*(p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma;
        at most (2*lg(p)-1)*alpha + 2*(p-1)/p*Z*beta + 2*(p-1)/p*Z*gamma
    Limits: only for commutative operations; for any number of ranks: if one half is larger by one rank, one rank
        combines twice.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with uneven halves.
    """
    yield from reversed_allgather(patterns.recursive_multiplying(rank, size, 2))


@algorithm(ordered=False, symmetry=around)
def pairwise(rank: int, size: int) -> Schedule:
    """In round n, rank r sends block r+n to rank r+n, and combines the block r that it receives from rank r-n.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, [to]), Reduce(source, [rank])


@algorithm(ordered=False)
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Reduce-scatter inside each host, then parallel rings between the hosts, each for the blocks of some ranks.

    Rounds: h-1 + p/h-1
    Messages: h-1 + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (h+p/h-2)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations.  The formulas are for p/h ranks on each of h hosts; the link of a host then
        carries (h-1)/h*Z in each direction, which is the minimum, for any placement of ranks.
    Source: the first half of `allreduce.two_level`.
    """
    lanes = Lanes(rank, size, hosts)
    yield from patterns.inside_reduce_scatter(lanes, lanes.members)
    if lanes.inside:
        right, left = lanes.ring()
        for step in range(1, len(lanes.hosts)):
            yield (
                Send(right, lanes.ranks(lanes.host - step, lanes.lane)),
                Reduce(left, lanes.ranks(lanes.host - step - 1, lanes.lane)),
            )
    yield from patterns.scatter_beside(lanes, rank, lambda other: [other])


@algorithm(ordered=False, listed=(4, 8))
def recursive_multiplying(rank: int, size: int, k: int) -> Schedule:
    """As `recursive_halving`, with k parts instead of halves; it is the reverse of `allgather.recursive_multiplying`.

    Rounds: log(p, k)
    Messages: fan(p, k)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z; at most 2*(p-1)/p*Z
    Cost: fan(p, k)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma;
        at most (2*fan(p, k)-1)*alpha + 2*(p-1)/p*Z*beta + 2*(p-1)/p*Z*gamma
    Limits: only for commutative operations; the bounds are for numbers of ranks that are not powers of k.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023, with uneven parts.
    """
    yield from reversed_allgather(patterns.recursive_multiplying(rank, size, k))


@algorithm(ordered=False)
def swing(rank: int, size: int) -> Schedule:
    """Swing, the reverse of `allgather.swing`: the nearest partners first, with the most blocks.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; for odd numbers of ranks it runs the reverse of `allgather.bruck`.
    Source: De Sensi et al., "Swing", NSDI 2024, in one dimension.
    """
    yield from reversed_allgather(allgather.swing(rank, size))


@algorithm(ordered=False)
def bine(rank: int, size: int) -> Schedule:
    """The butterfly of Bine trees; its exchanges are those of `swing`.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: as `swing`.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from swing(rank, size)


@algorithm(ordered=False, listed=(2, 8), least=1, symmetry=around)
def pat(rank: int, size: int, k: int) -> Schedule:
    """PAT, the reverse of `allgather.pat`: partial results go up a binomial tree to each rank, at most k in a message.

    Rounds: pat(p, k)
    Messages: pat(p, k)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: pat(p, k)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; needs scratch for k partial results on each level of a tree.
    Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; in NCCL 2.23.
    """
    yield from reversed_allgather(patterns.pat(rank, size, k))


@algorithm(ordered=False, symmetry=around)
def trivance(rank: int, size: int) -> Schedule:
    """Trivance: each round exchanges partial results on both sides, the nearest ranks first, with the most blocks.

    Rounds: at most log(p, 3) if 3**log(p, 3) == p else 2*log(p, 3)
    Messages: at most 2*log(p, 3)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: at most 2*log(p, 3)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; as `allgather.trivance`.
    Source: Juerss, Addanki and Schmid, "Trivance: latency-optimal AllReduce by shortcutting multiport networks",
        arXiv:2602.17254 (2026).
    """
    yield from reversed_allgather(patterns.trivance(rank, size))


@algorithm(ordered=False)
def two_level_log(rank: int, size: int, hosts: Hosts) -> Schedule:
    """The reverse of `allgather.two_level_log`: as `two_level`, in lg(h) rounds between the hosts.

    Rounds: lg(h) + p/h-1
    Messages: lg(h) + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (lg(h)+p/h-1)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: as `two_level`.
    Source: as `two_level`.
    """
    yield from reversed_allgather(allgather.two_level_log(rank, size, hosts))


@algorithm(ordered=False, levels=("node", "numa"))
def hierarchical(rank: int, size: int, hosts: Hosts) -> Schedule:
    """The reverse of `allgather.hierarchical`: rings inside the smallest domains first, between the hosts last.

    Rounds: h-1 + p/h-1
    Messages: h-1 + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (h+p/h-2)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; as `allgather.hierarchical`.
    Source: as `allreduce.hierarchical`.
    """
    yield from reversed_allgather(allgather.hierarchical(rank, size, hosts))
