"""Exclusive scan: rank r > 0 gets the combination of the vectors of ranks 0 to r-1, in rank order; rank 0 gets nothing.

Each algorithm moves all vectors by one rank, and then runs the scan of the same name on ranks 1 to p-1.
"""

from __future__ import annotations

from ..schedule.cuts import per_segment
from ..schedule.moves import Blocks, Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import scan


def _move_on(rank: int, size: int, blocks: Blocks = (0,)) -> Schedule:
    """Send the vector of each rank to the next rank."""
    sends = [Send(rank + 1, blocks)] if rank < size - 1 else []
    receives = [Recv(rank - 1, blocks)] if rank > 0 else []
    if size > 1:
        yield (*sends, *receives)


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """All vectors move by one rank; then each rank in turn combines the result of its predecessor with its own vector.

    Rounds: p-1
    Messages: min(p-1, 2)
    Sent: min(p-1, 2)*Z
    Received: min(p-1, 2)*Z
    Cost: (p-1)*alpha + (p-1)*Z*beta + (p-2)*Z*gamma
    Source: the definition of MPI_Exscan in the MPI standard.
    """
    yield from _move_on(rank, size)
    yield from scan.naive(rank, size, first=1)


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """All vectors move by one rank; then recursive doubling.

    Rounds: 1+lg(p-1)
    Messages: 1+lg(p-1)
    Sent: (1+lg(p-1))*Z
    Received: (1+lg(p-1))*Z
    Cost: (1+lg(p-1))*alpha + (1+lg(p-1))*Z*beta + lg(p-1)*Z*gamma
    Limits: best for short vectors.
    Source: Hillis and Steele, "Data parallel algorithms", Communications of the ACM 29 (1986).
    """
    yield from _move_on(rank, size)
    yield from scan.tree(rank, size, first=1)


@algorithm(cut=per_segment)
def ring(rank: int, size: int, segments: int) -> Schedule:
    """All vectors move by one rank; then a pipelined chain.

    Rounds: S+p-2 if p > 2 else 1
    Messages: S+1 if p > 2 else 1
    Sent: min(p-1, 2)*Z
    Received: min(p-1, 2)*Z
    Cost: (S+p-2 if p > 2 else 1)*alpha + (1 + ((S+p-3)/S if p > 2 else 0))*Z*beta
        + ((S+p-3)/S if p > 2 else 0)*Z*gamma
    Limits: best for long vectors cut into many segments; in place, it needs Z of scratch.
    Source: Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006, the linear pipeline.
    """
    yield from _move_on(rank, size, range(segments))
    yield from scan.ring(rank, size, segments, first=1)
