"""Gather of blocks of different lengths: every rank's block goes to the root.

A rank that hands on others' blocks must know their sizes, which only the root does: those algorithms broadcast
them first.  In the formulas the blocks are equal.
"""

from __future__ import annotations

from ..schedule.moves import Schedule
from ..schedule.registry import adopt, algorithm, counts_of
from . import bcast, gather

adopt("gatherv", "gather", "naive")


@algorithm(needs_counts=True)
def tree(rank: int, size: int, root: int) -> Schedule:
    """The root broadcasts the counts; then blocks go up a binomial tree.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Sent: max(lg(p)*8*p, (lg(p)-1)*8*p + (p//2)/p*Z)
    Received: max((p-1)/p*Z, 8*p + (p//2-1)/p*Z)
    Cost: 2*lg(p)*alpha + (lg(p)*8*p + (p-1)/p*Z)*beta
    Limits: an inner rank needs scratch for its subtree's blocks.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from bcast.tree(rank, size, root, [counts_of(root)])
    yield from gather.tree(rank, size, root)


@algorithm(needs_counts=True)
def ring(rank: int, size: int, root: int) -> Schedule:
    """The root broadcasts the counts down a tree; then blocks go up a chain, that of the rank itself first.

    Rounds: lg(p)+p-1
    Messages: at most lg(p)+p-1
    Sent: at most lg(p)*8*p + (p-1)/p*Z
    Received: at most 8*p + (p-1)/p*Z
    Cost: at most (lg(p)+p-1)*alpha + (lg(p)*8*p + (p-1)/p*Z)*beta
    Limits: scratch for the two largest blocks.
    Source: Bertsekas and Tsitsiklis, Parallel and Distributed Computation (1989), section 1.3, on a
        linear array.
    """
    yield from bcast.tree(rank, size, root, [counts_of(root)])
    yield from gather.ring(rank, size, root)
