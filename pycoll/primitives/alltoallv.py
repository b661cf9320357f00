"""All-to-all of blocks of different lengths: rank i's block j goes to rank j, where it becomes block i.

A rank that hands on others' blocks must know their sizes: those algorithms gather everybody's counts first.  In
the formulas the blocks are equal.
"""

from __future__ import annotations

from ..schedule.moves import Schedule
from ..schedule.registry import adopt, algorithm, counts_of
from . import allgather, alltoall

adopt("alltoallv", "alltoall", "naive", "pairwise")


@algorithm(needs_counts=True)
def tree(rank: int, size: int) -> Schedule:
    """All-gather of the counts; then Bruck: a block that has d ranks to go moves by 2**k in round k if d has bit k.

    Rounds: 2*lg(p)
    Messages: 2*lg(p)
    Sent: (p-1)*8*p + bruck(p)/p*Z
    Received: (p-1)*8*p + bruck(p)/p*Z
    Cost: 2*lg(p)*alpha + ((p-1)*8*p + bruck(p)/p*Z)*beta
    Limits: best for short blocks: each travels up to lg(p) times, packed in scratch of up to Z.
    Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8 (1997).
    """
    yield from allgather.bruck(rank, size, counts_of)
    yield from alltoall.tree(rank, size)


@algorithm(needs_counts=True)
def ring(rank: int, size: int) -> Schedule:
    """All-gather of the counts; then blocks pass from neighbour to neighbour, each rank taking out its own.

    Rounds: lg(p)+p-1
    Messages: lg(p)+p-1
    Sent: (p-1)*8*p + (p-1)/2*Z
    Received: (p-1)*8*p + (p-1)/2*Z
    Cost: (lg(p)+p-1)*alpha + ((p-1)*8*p + (p-1)/2*Z)*beta
    Limits: scratch for what goes out, packed, and for what comes in.
    Source: Grama, Gupta, Karypis and Kumar, Introduction to Parallel Computing (2003), personalized
        all-to-all on a ring.
    """
    yield from allgather.bruck(rank, size, counts_of)
    yield from alltoall.ring(rank, size)
