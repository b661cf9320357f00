"""All-reduce: the vectors of all ranks are combined element by element; every rank gets the result."""

from __future__ import annotations

from collections.abc import Sequence

from ..schedule.cuts import around, halves, per_lane_and_host, per_port_and_rank, per_rank, sides, two_per_segment
from ..schedule.hosts import Hosts
from ..schedule.moves import AFTER, BEFORE, Block, Combine, Copy, Recv, Reduce, Schedule, Send
from ..schedule.registry import algorithm
from . import allgather, bcast, reduce, reduce_scatter, torus
from .double_tree import two_trees
from .patterns import bruck_between, grid_allgather, inside_allgather, inside_reduce_scatter, reversed_allgather
from .rank_arithmetic import Grid, Lanes, divisions


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Naive reduce to rank 0, then naive broadcast from it, as in a parameter server.

    Rounds: 2*(p-1)
    Messages: p-1
    Sent: (p-1)*Z
    Received: (p-1)*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)*Z*beta + (p-1)*Z*gamma
    Limits: the link of rank 0 carries (p-1)*Z in each direction.
    Source: the definition of MPI_Allreduce in the MPI standard.
    """
    yield from reduce.naive(rank, size, 0)
    yield from bcast.naive(rank, size, 0)


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """Binomial reduce to rank 0, then binomial broadcast from it.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: lg(p)*Z
    Cost: 2*lg(p)*alpha + 2*lg(p)*Z*beta + lg(p)*Z*gamma
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from reduce.tree(rank, size, 0)
    yield from bcast.tree(rank, size, 0)


@algorithm(cut=per_rank, ordered=False, symmetry=around)
def ring(rank: int, size: int) -> Schedule:
    """Ring reduce-scatter, then ring all-gather: no all-reduce can send fewer bytes.

    Rounds: 2*(p-1)
    Messages: 2*(p-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; best for long vectors.
    Source: Patarasuk and Yuan, JPDC 69 (2009).
    """
    yield from reduce_scatter.ring(rank, size)
    yield from allgather.ring(rank, size)


@algorithm(listed=(4, 8))
def knomial(rank: int, size: int, k: int) -> Schedule:
    """k-nomial reduce to rank 0, then k-nomial broadcast from it.

    Rounds: 2*log(p, k)
    Messages: fan(p, k)
    Sent: fan(p, k)*Z
    Received: fan(p, k)*Z
    Cost: 2*fan(p, k)*alpha + 2*fan(p, k)*Z*beta + fan(p, k)*Z*gamma
    Limits: as `reduce.knomial` and `bcast.knomial`.
    Source: as `bcast.knomial`.
    """
    yield from reduce.knomial(rank, size, 0, k)
    yield from bcast.knomial(rank, size, 0, k)


@algorithm(symmetry=halves)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Halves of the ranks exchange their results; every rank combines the results of the lower and the upper half.

    Rounds: lg(p)
    Messages: lg(p); at most lg(p)+1
    Sent: lg(p)*Z; at most (lg(p)+1)*Z
    Received: lg(p)*Z
    Cost: lg(p)*alpha + lg(p)*Z*beta + lg(p)*Z*gamma;
        at most (2*lg(p)-1)*alpha + (2*lg(p)-1)*Z*beta + lg(p)*Z*gamma
    Limits: best for short vectors; for any number of ranks, without the two extra rounds of the usual version.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with uneven halves.
    """
    for level in reversed(divisions(rank, size, 2)):
        [(other, source)] = level.others
        order = AFTER if level.mine[0] < other[0] else BEFORE
        yield (*(Send(to, [0]) for to in level.targets), Reduce(source, [0], order))


@algorithm(listed=(4, 8))
def recursive_multiplying(rank: int, size: int, k: int) -> Schedule:
    """As `recursive_doubling`, with k parts instead of halves; every rank combines the results of all parts.

    Rounds: log(p, k)
    Messages: fan(p, k); at most fan(p, k)+k-1
    Sent: fan(p, k)*Z; at most (fan(p, k)+k-1)*Z
    Received: fan(p, k)*Z
    Cost: fan(p, k)*alpha + fan(p, k)*Z*beta + fan(p, k)*Z*gamma;
        at most (2*fan(p, k)-1)*alpha + (2*fan(p, k)-1)*Z*beta + fan(p, k)*Z*gamma
    Limits: best for short vectors; needs scratch for the results of k parts, because all ranks must combine them in the
        same order.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023, with uneven parts.
    """
    for level in reversed(divisions(rank, size, k)):
        mine = (level.mine[0], 0)  # the copy of the vector that all ranks of a part hold
        others = [((part[0], 0), source) for part, source in level.others]
        yield (Copy(0, mine),)
        yield (*(Send(to, [mine]) for to in level.targets), *(Recv(source, [name]) for name, source in others))
        yield from _combine_copies(sorted([mine, *(name for name, _ in others)]))


def _combine_copies(copies: Sequence[Block]) -> Schedule:
    """Combine copies of the vector in this order."""
    yield (Copy(copies[0], 0),)
    for copy in copies[1:]:
        yield (Combine(copy, 0, AFTER),)


@algorithm(cut=per_rank, ordered=False, symmetry=halves)
def rabenseifner(rank: int, size: int) -> Schedule:
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling.

    Rounds: 2*lg(p)
    Messages: 2*lg(p); at most 2*lg(p)+1
    Sent: 2*(p-1)/p*Z; at most 8/3*(p-1)/p*Z
    Received: 2*(p-1)/p*Z; at most 8/3*(p-1)/p*Z
    Cost: 2*lg(p)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma;
        at most (4*lg(p)-2)*alpha + 4*(p-1)/p*Z*beta + 2*(p-1)/p*Z*gamma
    Limits: only for commutative operations.
    Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    yield from reduce_scatter.recursive_halving(rank, size)
    yield from allgather.tree(rank, size)


@algorithm(cut=two_per_segment)
def double_tree(rank: int, size: int, segments: int) -> Schedule:
    """Two pipelined binary trees, each for half of the vector; an inner node of one tree is a leaf of the other.

    Rounds: 2*lg(p)+S-1
    Messages: at most 4*S
    Sent: at most 2*Z
    Received: at most 2*Z
    Cost: at most (2*lg(p)+S-1)*4*alpha + (2*lg(p)+S-1)/S*2*Z*beta + (lg(p)+S)/S*3/2*Z*gamma
    Limits: best for vectors of medium length on many ranks.
    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
        scan", Parallel Computing 35 (2009).  One tree is the binary tree of NCCL (ncclGetBtree), the other is the
        same tree shifted by one rank.
    """
    yield from two_trees(rank, size, segments)


@algorithm(cut=per_lane_and_host, ordered=False)
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Reduce-scatter inside each host, parallel rings between the hosts, then all-gather inside each host.

    Rounds: 2*(h-1) + 2*(p/h-1)
    Messages: 2*(h-1) + 2*(p/h-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(h+p/h-2)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations.  The formulas are for p/h ranks on each of h hosts; the link of a host then
        carries 2*(h-1)/h*Z in each direction, which is the minimum, for any placement of ranks.
    Source: hierarchical rings as in Jia et al., "Highly scalable deep learning training system with mixed-precision",
        2018, with a ring for each rank of a host as in Cho et al., "BlueConnect", SysML 2019.
    """
    lanes = Lanes(rank, size, hosts)
    count = len(lanes.hosts)

    def part(lane: int) -> range:
        return range(lane * count, (lane + 1) * count)

    yield from inside_reduce_scatter(lanes, part)
    if lanes.inside:
        right, left = lanes.ring()
        mine = part(lanes.lane)
        for step in range(1, count):
            yield Send(right, [mine[lanes.host - step]]), Reduce(left, [mine[lanes.host - step - 1]])
        for step in range(count - 1):
            yield Send(right, [mine[lanes.host - step]]), Recv(left, [mine[lanes.host - step - 1]])
    yield from inside_allgather(lanes, lambda lane, to: part(lane))


@algorithm(symmetry=around)
def ring_whole(rank: int, size: int) -> Schedule:
    """Whole vectors go once around the ring; every rank combines all of them in rank order.

    Compare Sent with `ring` to see why vectors are cut into parts.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)*Z
    Received: (p-1)*Z
    Cost: (p-1)*alpha + (p-1)*Z*beta + (p-1)*Z*gamma
    Limits: needs (p-1)*Z of scratch, because all ranks must combine in the same order to get the same bits.
    Source: ring all-gather (see `allgather.ring`) of whole vectors, known as the "naive ring".
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    yield (Copy(0, (rank, 0)),)
    for step in range(size - 1):
        yield Send(right, [((rank - step) % size, 0)]), Recv(left, [((rank - step - 1) % size, 0)])
    yield from _combine_copies([(source, 0) for source in range(size)])


@algorithm(symmetry=around)
def bruck_whole(rank: int, size: int) -> Schedule:
    """One all-gather of whole vectors in lg(p) rounds; every rank then combines all of them in rank order.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)*Z
    Received: (p-1)*Z
    Cost: lg(p)*alpha + (p-1)*Z*beta + (p-1)*Z*gamma
    Limits: for vectors of a few bytes: it has more bytes than `recursive_doubling`, but no rank sends twice in a round
        if p is not a power of two; needs scratch for p vectors.
    Source: `allgather.bruck`, of whole vectors.
    """
    yield (Copy(0, (rank, 0)),)
    yield from allgather.bruck(rank, size, lambda source: (source, 0))
    yield from _combine_copies([(source, 0) for source in range(size)])


@algorithm(cut=per_rank, ordered=False)
def swing(rank: int, size: int) -> Schedule:
    """Swing: reduce-scatter with the nearest partners first, then all-gather with the nearest partners last.

    Rounds: 2*lg(p)
    Messages: 2*lg(p)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*lg(p)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; as `allgather.swing` for odd numbers of ranks.  The paper also has a form
        that exchanges whole vectors.  It is left out, because its ranks combine in different orders and get different
        bits.
    Source: De Sensi et al., "Swing", NSDI 2024, in one dimension.
    """
    yield from reduce_scatter.swing(rank, size)
    yield from allgather.swing(rank, size)


@algorithm(cut=per_rank, ordered=False, symmetry=around)
def trivance(rank: int, size: int) -> Schedule:
    """Trivance: reduce-scatter with the nearest ranks on both sides first, then all-gather with the nearest last.

    Rounds: at most 2*log(p, 3) if 3**log(p, 3) == p else 4*log(p, 3)
    Messages: at most 4*log(p, 3)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: at most 4*log(p, 3)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; as `allgather.trivance`.  The paper also has a form that exchanges whole
        vectors in log(p, 3) rounds.  It is left out, because its ranks combine in different orders and get different
        bits.
    Source: Juerss, Addanki and Schmid, "Trivance: latency-optimal AllReduce by shortcutting multiport networks",
        arXiv:2602.17254 (2026).
    """
    yield from reduce_scatter.trivance(rank, size)
    yield from allgather.trivance(rank, size)


@algorithm(cut=per_port_and_rank, ordered=False, listed=(2,), least=1, symmetry=sides)
def bucket(rank: int, size: int, k: int) -> Schedule:
    """The ring in each dimension of a torus of k dimensions, in turn; the vector is cut among the ports of a rank.

    Rounds: 2*around(p, k)
    Messages: 2*ports(p, k)*around(p, k)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*ports(p, k)*around(p, k)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; for tori whose sides are as equal as possible.
    Source: Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
    """
    yield from torus.allreduce(rank, size, k, allgather.ring, torus.in_turn)


@algorithm(cut=per_port_and_rank, ordered=False, listed=(2,), least=1)
def torus_swing(rank: int, size: int, k: int) -> Schedule:
    """Swing on a torus of k dimensions: the dimensions alternate; the vector is cut among the ports of a rank.

    Rounds: 2*lgs(p, k)
    Messages: 2*ports(p, k)*lgs(p, k)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*ports(p, k)*lgs(p, k)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: as `bucket`; a side with an odd number of ranks runs `allgather.bruck` and its reverse.
    Source: De Sensi et al., "Swing", NSDI 2024.
    """
    yield from torus.allreduce(rank, size, k, allgather.swing, torus.alternating)


@algorithm(ordered=False)
def bine(rank: int, size: int) -> Schedule:
    """Reduce to rank 0 in a Bine tree, then broadcast from it in the same tree.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: lg(p)*Z
    Cost: 2*lg(p)*alpha + 2*lg(p)*Z*beta + lg(p)*Z*gamma
    Limits: only for commutative operations; best for short vectors.  For long ones, the Bine butterfly is `swing`.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from reduce.bine(rank, size, 0)
    yield from bcast.bine(rank, size, 0)


@algorithm(cut=per_lane_and_host, ordered=False)
def two_level_log(rank: int, size: int, hosts: Hosts) -> Schedule:
    """As `two_level`, with lg(h) rounds in each direction between the hosts instead of h-1.

    Rounds: 2*lg(h) + 2*(p/h-1)
    Messages: 2*lg(h) + 2*(p/h-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(lg(h)+p/h-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: as `two_level`; parts are packed and unpacked in scratch.
    Source: as `two_level`, with `allgather.bruck` and its reverse between the hosts.
    """
    lanes = Lanes(rank, size, hosts)

    def part(lane: int) -> range:
        return range(lane * len(lanes.hosts), (lane + 1) * len(lanes.hosts))

    def one(host: int) -> range:
        return part(lanes.lane)[host : host + 1]

    yield from inside_reduce_scatter(lanes, part)
    yield from reversed_allgather(bruck_between(lanes, one))
    yield from bruck_between(lanes, one)
    yield from inside_allgather(lanes, lambda lane, to: part(lane))


@algorithm(cut=per_rank, ordered=False, levels=("node", "numa"))
def hierarchical(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Reduce-scatter in rings inside the smallest domains, then between them, up to the hosts; then all-gather back.

    Rounds: 2*(h-1) + 2*(p/h-1)
    Messages: 2*(h-1) + 2*(p/h-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(h+p/h-2)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: only for commutative operations; if the domains of a level differ in the number of their parts, it is one
        ring.  The formulas are for h hosts without smaller domains.  With n domains in each host, 2*(n-1) +
        2*(p/(h*n)-1) rounds replace 2*(p/h-1), and the link of a domain carries 2*(n-1)/n*Z in each direction, the
        minimum.
    Source: Cho et al., "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network hierarchy",
        SysML 2019.
    """
    grid = Grid(rank, size, hosts)
    yield from reversed_allgather(grid_allgather(grid, lambda positions: positions))
    yield from grid_allgather(grid, lambda positions: positions)
