"""All-to-all with blocks of different lengths: block j of rank i goes to rank j, where it becomes block i.

A rank that forwards blocks of other ranks must know their sizes.  Algorithms with such ranks begin with an all-gather
of the counts.  The formulas are for blocks of equal length.
"""

from __future__ import annotations

from ..schedule.moves import Schedule
from ..schedule.registry import adopt, algorithm, counts_of
from . import allgather, alltoall

adopt("alltoallv", "alltoall", "naive", "pairwise")


@algorithm(needs_counts=True)
def tree(rank: int, size: int) -> Schedule:
    """All-gather of the counts, then Bruck, as `alltoall.tree`.

    Rounds: 2*lg(p)
    Messages: 2*lg(p)
    Sent: (p-1)*8*p + digits(p, 2)/p*Z
    Received: (p-1)*8*p + digits(p, 2)/p*Z
    Cost: 2*lg(p)*alpha + ((p-1)*8*p + digits(p, 2)/p*Z)*beta
    Limits: best for short blocks: each is sent up to lg(p) times, packed in scratch of up to Z.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997).
    """
    yield from allgather.bruck(rank, size, counts_of)
    yield from alltoall.tree(rank, size)


@algorithm(needs_counts=True)
def ring(rank: int, size: int) -> Schedule:
    """All-gather of the counts; then blocks pass from neighbor to neighbor, and each rank keeps its own blocks.

    Rounds: lg(p)+p-1
    Messages: lg(p)+p-1
    Sent: (p-1)*8*p + (p-1)/2*Z
    Received: (p-1)*8*p + (p-1)/2*Z
    Cost: (lg(p)+p-1)*alpha + ((p-1)*8*p + (p-1)/2*Z)*beta
    Limits: needs scratch for the packed blocks that are sent and for the blocks that are received.
    Source: Grama, Gupta, Karypis and Kumar, Introduction to Parallel Computing (2003), personalized
        all-to-all on a ring.
    """
    yield from allgather.bruck(rank, size, counts_of)
    yield from alltoall.ring(rank, size)
