"""Scatter with blocks of different lengths: rank r gets block r of the buffer of the root.

A rank that forwards blocks of other ranks must know their sizes, which only the root knows.  Algorithms with such ranks
begin with a broadcast of the counts.  The formulas are for blocks of equal length.
"""

from __future__ import annotations

from ..schedule.moves import Schedule
from ..schedule.registry import adopt, algorithm, counts_of
from . import bcast, scatter

adopt("scatterv", "scatter", "naive")


@algorithm(needs_counts=True)
def tree(rank: int, size: int, root: int) -> Schedule:
    """The root broadcasts the counts; then blocks go down a binomial tree.

    Rounds: 2*lg(p)
    Messages: 2*lg(p)
    Sent: lg(p)*8*p + (p-1)/p*Z
    Received: 8*p + (p//2)/p*Z
    Cost: 2*lg(p)*alpha + (lg(p)*8*p + (p-1)/p*Z)*beta
    Limits: an inner node needs scratch for the blocks of its subtree.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from bcast.tree(rank, size, root, [counts_of(root)])
    yield from scatter.tree(rank, size, root)


@algorithm(needs_counts=True)
def ring(rank: int, size: int, root: int) -> Schedule:
    """The root broadcasts the counts down a tree; then blocks go down a chain, with the block of the last rank first.

    Rounds: lg(p)+p-1
    Messages: lg(p)+p-1
    Sent: lg(p)*8*p + (p-1)/p*Z
    Received: 8*p + (p-1)/p*Z
    Cost: (lg(p)+p-1)*alpha + (lg(p)*8*p + (p-1)/p*Z)*beta
    Limits: needs scratch for the two largest blocks.
    Source: Bertsekas and Tsitsiklis, Parallel and Distributed Computation (1989), section 1.3, on a
        linear array.
    """
    yield from bcast.tree(rank, size, root, [counts_of(root)])
    yield from scatter.ring(rank, size, root)
