"""All-to-all: block j of rank i goes to rank j, where it becomes block i."""

from __future__ import annotations

from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm


@algorithm()
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


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """Bruck: in round k, each block whose destination is d ranks away moves by 2**k ranks if bit k of d is set.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: bruck(p)/p*Z
    Received: bruck(p)/p*Z
    Cost: lg(p)*alpha + bruck(p)/p*Z*beta
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


@algorithm()
def ring(rank: int, size: int) -> Schedule:
    """Blocks pass from neighbour to neighbour; each rank keeps its own blocks and forwards the rest.

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


@algorithm()
def pairwise(rank: int, size: int) -> Schedule:
    """In round k, rank r sends to rank r+k and receives from rank r-k.

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
