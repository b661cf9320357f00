"""All-to-all: block j of rank i goes to rank j, where it becomes block i."""

from __future__ import annotations

from itertools import product

from ..schedule.cuts import around, side
from ..schedule.hosts import Hosts
from ..schedule.moves import Move, Recv, Schedule, Send
from ..schedule.registry import algorithm
from .patterns import scatter_beside
from .rank_arithmetic import Lanes
from .swing import bine_alltoall


@algorithm(symmetry=around)
def naive(rank: int, size: int) -> Schedule:
    """All sends and all receives start at once.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Limits: each rank has 2*(p-1) messages in flight, and nothing avoids contention.
    Source: the definition of MPI_Alltoall in the MPI standard.
    """
    others = [(rank + step) % size for step in range(1, size)]
    if others:
        yield (
            *(Recv(peer, [(peer, rank)]) for peer in reversed(others)),
            *(Send(peer, [(rank, peer)]) for peer in others),
        )


@algorithm(symmetry=around)
def tree(rank: int, size: int) -> Schedule:
    """Bruck: in round n, each block whose destination is d ranks away moves by 2**n ranks if bit n of d is set.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: digits(p, 2)/p*Z
    Received: digits(p, 2)/p*Z
    Cost: lg(p)*alpha + digits(p, 2)/p*Z*beta
    Limits: best for short blocks: each is sent up to lg(p) times, packed in scratch of up to Z.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997).
    """
    bit = 1
    while bit < size:
        distances = [d for d in range(size) if d & bit]
        right, left = (rank + bit) % size, (rank - bit) % size
        yield Send(right, _underway(rank, size, bit, distances)), Recv(left, _underway(left, size, bit, distances))
        bit *= 2


def _underway(rank: int, size: int, bit: int, distances: list[int]) -> list[tuple[int, int]]:
    """Return the blocks with these distances from origin to destination that are at `rank` in the round of `bit`."""
    origins = [(rank - (d & bit - 1)) % size for d in distances]
    return [(origin, (origin + d) % size) for origin, d in zip(origins, distances)]


@algorithm(symmetry=around)
def ring(rank: int, size: int) -> Schedule:
    """Blocks pass from neighbor to neighbor; each rank keeps its own blocks and forwards the rest.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/2*Z
    Received: (p-1)/2*Z
    Cost: (p-1)*alpha + (p-1)/2*Z*beta
    Limits: needs 2*p-2 blocks of scratch, because p-1 packed blocks are sent while p-1 are received; p-1 more in place.
    Source: Grama, Gupta, Karypis and Kumar, Introduction to Parallel Computing (2003), personalized
        all-to-all on a ring.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        leaving, coming = (rank - step + 1) % size, (rank - step) % size
        yield (
            Send(right, [(leaving, (leaving + d) % size) for d in range(step, size)]),
            Recv(left, [(coming, (coming + d) % size) for d in range(step, size)]),
        )


@algorithm(symmetry=around)
def pairwise(rank: int, size: int) -> Schedule:
    """In round n, rank r sends to rank r+n and receives from rank r-n.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, [(rank, to)]), Recv(source, [(source, rank)])


@algorithm()
def bine(rank: int, size: int) -> Schedule:
    """Bine butterfly: partners at distances 1, -1, 3, -5, 11, ..., each of which gets the blocks that it brings nearer.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: digits(p, 2)/p*Z; at most lg(p)/2*Z
    Received: digits(p, 2)/p*Z; at most lg(p)/2*Z
    Cost: lg(p)*alpha + digits(p, 2)/p*Z*beta; at most lg(p)*alpha + lg(p)/2*Z*beta
    Limits: best for short blocks, as `tree`; for odd numbers of ranks it runs `tree`.
    Source: De Sensi et al., "Bine trees", SC 2025.
    """
    yield from tree(rank, size) if size % 2 else bine_alltoall(rank, size)


@algorithm(listed=(2, 3), symmetry=around)
def grid(rank: int, size: int, k: int) -> Schedule:
    """A grid of k dimensions with sides of side(p, k) ranks: a block moves along one dimension after the other.

    Rounds: log(p, side(p, k))
    Messages: fan(p, side(p, k))
    Sent: digits(p, side(p, k))/p*Z
    Received: digits(p, side(p, k))/p*Z
    Cost: fan(p, side(p, k))*alpha + digits(p, side(p, k))/p*Z*beta
    Limits: for short blocks on many ranks: about 2*sqrt(p) messages for k = 2, instead of p-1, and nearly k times the
        bytes.  It is for any number of ranks, because distances count, as in `tree`, and not positions in the grid.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997), with side(p, k) as radix.
    """
    base, unit = side(size, k), 1

    def blocks(at: int, distances: list[int]) -> list[tuple[int, int]]:
        origins = [at - d % unit for d in distances]  # they have moved by the digits before this one
        return [(origin % size, (origin + d) % size) for origin, d in zip(origins, distances)]

    while unit < size:
        moves: list[Move] = []
        for digit in range(1, base):
            distances = [d for d in range(digit * unit, size) if d // unit % base == digit]
            if distances:
                moves += [
                    Send((rank + digit * unit) % size, blocks(rank, distances)),
                    Recv((rank - digit * unit) % size, blocks(rank - digit * unit, distances)),
                ]
        yield tuple(moves)
        unit *= base


@algorithm()
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """In each host, every rank collects the blocks for a lane of ranks; then the ranks of each lane exchange in pairs.

    Rounds: h-1 + p/h-1
    Messages: h-1 + p/h-1
    Sent: (2*p-h-p/h)/p*Z
    Received: (2*p-h-p/h)/p*Z
    Cost: (h+p/h-2)*alpha + (2*p-h-p/h)/p*Z*beta
    Limits: for short blocks: there are p/h times fewer messages between hosts than in `pairwise`.  The formulas are for
        p/h ranks on each of h hosts.
    Source: Träff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", EuroMPI/ASIA
        2014.
    """
    lanes = Lanes(rank, size, hosts)
    for to, source in lanes.pairs():
        moves: list[Move] = []
        if to < lanes.count:
            moves.append(Send(lanes.here[to], [(rank, d) for d in lanes.members(to) if d != rank]))
        if lanes.inside:
            other = lanes.here[source]
            moves.append(Recv(other, [(other, d) for d in lanes.members(lanes.lane) if d != other]))
        if moves:
            yield tuple(moves)
    if lanes.inside:
        for step in range(1, len(lanes.hosts)):
            there, back = ((lanes.host + way) % len(lanes.hosts) for way in (step, -step))
            yield (
                Send(lanes.hosts[there][lanes.lane], list(product(lanes.here, lanes.ranks(there, lanes.lane)))),
                Recv(
                    lanes.hosts[back][lanes.lane],
                    list(product(lanes.hosts[back], lanes.ranks(lanes.host, lanes.lane))),
                ),
            )
    yield from scatter_beside(lanes, rank, lambda to: [(source, to) for source in range(size) if source != to])
