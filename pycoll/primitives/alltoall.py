"""All-to-all: rank i's block j goes to rank j, where it becomes block i."""

from __future__ import annotations

from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Everything at once: all sends and all receives start together.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Limits: 2*(p-1) messages in flight at every rank, and contention is left to chance.
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
    """Bruck: a block that has d ranks to go moves by 2**k in round k if d has bit k.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: bruck(p)/p*Z
    Received: bruck(p)/p*Z
    Cost: lg(p)*alpha + bruck(p)/p*Z*beta
    Limits: best for short blocks: each travels up to lg(p) times, packed in scratch of up to Z.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997).
    """
    bit = 1
    while bit < size:
        distances = [d for d in range(size) if d & bit]
        right, left = (rank + bit) % size, (rank - bit) % size
        yield Send(right, _underway(rank, size, bit, distances)), Recv(left, _underway(left, size, bit, distances))
        bit *= 2


def _underway(rank: int, size: int, bit: int, distances: list[int]) -> list[tuple[int, int]]:
    """The blocks with these distances to go in all that are at `rank` when it is bit's turn."""
    origins = [(rank - (d & bit - 1)) % size for d in distances]
    return [(origin, (origin + d) % size) for origin, d in zip(origins, distances)]


@algorithm()
def ring(rank: int, size: int) -> Schedule:
    """Blocks pass from neighbour to neighbour; each rank takes out its own and hands on the rest.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)/2*Z
    Received: (p-1)/2*Z
    Cost: (p-1)*alpha + (p-1)/2*Z*beta
    Limits: 2*p-2 blocks of scratch, for the p-1 that go out, packed, while p-1 come in; p-1 more in place.
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
    """In round k a rank sends to the k-th after it and receives from the k-th before it.

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
