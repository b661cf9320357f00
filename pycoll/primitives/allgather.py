"""All-gather: every rank gets the blocks of all ranks, in rank order."""

from __future__ import annotations

from collections.abc import Callable

from ..schedule.cuts import around, halves
from ..schedule.hosts import Hosts
from ..schedule.moves import Block, Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import gather, patterns
from .patterns import bruck_between, gather_beside, grid_allgather, inside_allgather, one_to_all
from .rank_arithmetic import Grid, Lanes
from .swing import swing_allgather


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Naive gather to rank 0, then naive broadcast from it.

    Rounds: 2*(p-1)
    Messages: p-1
    Sent: (p-1)*Z
    Received: Z
    Cost: 2*(p-1)*alpha + ((p-1)/p + (p-1))*Z*beta
    Limits: the link of rank 0 carries all the data.
    Source: the definition of MPI_Allgather in the MPI standard.
    """
    yield from gather.naive(rank, size, 0)
    yield from one_to_all(rank, size, 0, range(size))


@algorithm(symmetry=halves)
def tree(rank: int, size: int) -> Schedule:
    """Recursive doubling: halves of the ranks, in which every rank has all blocks of its half, exchange their blocks.

    Rounds: lg(p)
    Messages: lg(p); at most lg(p)+1
    Sent: (p-1)/p*Z; at most 5/3*(p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta; at most (2*lg(p)-1)*alpha + 2*(p-1)/p*Z*beta
    Limits: for any number of ranks; if one half is larger by one rank, one rank sends twice.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with uneven halves.
    """
    yield from patterns.recursive_multiplying(rank, size, 2)


@algorithm(symmetry=around)
def ring(rank: int, size: int) -> Schedule:
    """Blocks go around the ring: each rank forwards the block that it received in the round before.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19 (2007), the "bucket" algorithm.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, [(rank - step) % size]), Recv(left, [(rank - step - 1) % size])


@algorithm(listed=(4, 8))
def recursive_multiplying(rank: int, size: int, k: int) -> Schedule:
    """As `tree`, with k parts of the ranks instead of halves: each rank exchanges with k-1 ranks in a round.

    Rounds: log(p, k)
    Messages: fan(p, k); at most fan(p, k)+k-1
    Sent: (p-1)/p*Z; at most 2*(p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: fan(p, k)*alpha + (p-1)/p*Z*beta; at most (2*fan(p, k)-1)*alpha + 2*(p-1)/p*Z*beta
    Limits: the bounds are for numbers of ranks that are not powers of k; then some ranks send to two ranks of a part.
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023, with uneven parts.
    """
    yield from patterns.recursive_multiplying(rank, size, k)


@algorithm()
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Parallel rings between the hosts, each with the blocks of some ranks, then all-gather inside each host.

    Rounds: h-1 + p/h-1
    Messages: h-1 + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (h+p/h-2)*alpha + (p-1)/p*Z*beta
    Limits: the formulas are for p/h ranks on each of h hosts; the link of a host then carries (h-1)/h*Z in each
        direction, which is the minimum, for any placement of ranks.
    Source: the second half of `allreduce.two_level`.
    """
    lanes = Lanes(rank, size, hosts)
    yield from gather_beside(lanes, rank)
    if lanes.inside:
        right, left = lanes.ring()
        for step in range(len(lanes.hosts) - 1):
            yield (
                Send(right, lanes.ranks(lanes.host - step, lanes.lane)),
                Recv(left, lanes.ranks(lanes.host - step - 1, lanes.lane)),
            )
    yield from inside_allgather(lanes, lambda lane, to: [other for other in lanes.members(lane) if other != to])


@algorithm(symmetry=around)
def bruck(rank: int, size: int, name: Callable[[int], Block] = int) -> Schedule:
    """Each round doubles the sequence of consecutive blocks that a rank holds, which begins with its own block.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: sequences of blocks that wrap around are packed and unpacked in scratch.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997).
    """
    held = 1
    while held < size:
        count = min(held, size - held)
        below, above = (rank - held) % size, (rank + held) % size
        yield (
            Send(below, [name((rank + i) % size) for i in range(count)]),
            Recv(above, [name((above + i) % size) for i in range(count)]),
        )
        held *= 2


@algorithm()
def neighbor(rank: int, size: int) -> Schedule:
    """Neighbor exchange: each rank exchanges two blocks with its left and its right neighbor in turn.

    Rounds: p//2 if p % 2 == 0 else p-1
    Messages: p//2 if p % 2 == 0 else p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p//2 if p % 2 == 0 else p-1)*alpha + (p-1)/p*Z*beta
    Limits: for even numbers of ranks; for odd numbers it runs `ring`.
    Source: Chen, Zhang, Zhang and Yuan, "Performance evaluation of Allgather algorithms on terascale Linux
        cluster with fast Ethernet", HPCAsia 2005.
    """
    if size % 2:
        yield from ring(rank, size)
        return
    sign = 1 if rank % 2 == 0 else -1
    partners = (rank + sign) % size, (rank - sign) % size
    yield Send(partners[0], [rank]), Recv(partners[0], [partners[0]])
    home = last = rank - rank % 2  # the even rank of the own pair, and of the pair received last
    for step in range(1, size // 2):
        shift = 2 * ((step + 1) // 2)
        coming = (home - sign * shift if step % 2 else home + sign * shift) % size
        partner = partners[step % 2]
        yield Send(partner, [last, last + 1]), Recv(partner, [coming, coming + 1])
        last = coming


@algorithm()
def swing(rank: int, size: int) -> Schedule:
    """Swing: partners at distances 1, -1, 3, -5, 11, ...; the farthest are first, with the fewest blocks.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: for even numbers of ranks; for odd numbers it runs `bruck`.
    Source: De Sensi et al., "Swing", NSDI 2024, in one dimension.  The Bine butterfly (SC 2025) has the same exchanges.
    """
    yield from bruck(rank, size) if size % 2 else swing_allgather(rank, size)


@algorithm()
def bine(rank: int, size: int) -> Schedule:
    """The butterfly of Bine trees; its exchanges are those of `swing`.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: lg(p)*alpha + (p-1)/p*Z*beta
    Limits: as `swing`.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from swing(rank, size)


@algorithm(listed=(2, 8), least=1, symmetry=around)
def pat(rank: int, size: int, k: int) -> Schedule:
    """PAT: a binomial tree from each rank, the farthest ranks first; a message has at most k blocks.

    Rounds: pat(p, k)
    Messages: pat(p, k)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: pat(p, k)*alpha + (p-1)/p*Z*beta
    Limits: for k >= p/2 it has lg(p) rounds; for k=1, p-1 rounds.
    Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; in NCCL 2.23.
    """
    yield from patterns.pat(rank, size, k)


@algorithm(symmetry=around)
def trivance(rank: int, size: int) -> Schedule:
    """Trivance: each round exchanges blocks on both sides, so that a rank holds three times as many.

    Rounds: at most log(p, 3) if 3**log(p, 3) == p else 2*log(p, 3)
    Messages: at most 2*log(p, 3)
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: at most 2*log(p, 3)*alpha + (p-1)/p*Z*beta
    Limits: best for networks in which both directions of a ring or torus can be used at once, and for powers of three.
    Source: Juerss, Addanki and Schmid, "Trivance: latency-optimal AllReduce by shortcutting multiport networks",
        arXiv:2602.17254 (2026), reversed.
    """
    yield from patterns.trivance(rank, size)


@algorithm()
def two_level_log(rank: int, size: int, hosts: Hosts) -> Schedule:
    """As `two_level`, with `bruck` instead of rings between the hosts.

    Rounds: lg(h) + p/h-1
    Messages: lg(h) + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (lg(h)+p/h-1)*alpha + (p-1)/p*Z*beta
    Limits: as `two_level`; blocks are packed and unpacked in scratch.
    Source: as `two_level` and `bruck`.
    """
    lanes = Lanes(rank, size, hosts)
    yield from gather_beside(lanes, rank)
    yield from bruck_between(lanes, lambda host: lanes.ranks(host, lanes.lane))
    yield from inside_allgather(lanes, lambda lane, to: [other for other in lanes.members(lane) if other != to])


@algorithm(levels=("node", "numa"))
def hierarchical(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Rings between the hosts, then between the smaller domains of each host, then inside the smallest domains.

    Rounds: h-1 + p/h-1
    Messages: h-1 + p/h-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (h+p/h-2)*alpha + (p-1)/p*Z*beta
    Limits: if the domains of a level differ in the number of their parts, it is one ring.  The formulas are for h hosts
        without smaller domains.  With n domains in each host, n-1 + p/(h*n)-1 rounds replace p/h-1, and the link of a
        domain carries (n-1)/n*Z in each direction, the minimum.
    Source: as `allreduce.hierarchical`.
    """
    grid = Grid(rank, size, hosts)
    yield from grid_allgather(grid, lambda positions: [grid.ranks[each] for each in positions])
