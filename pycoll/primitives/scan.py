"""Scan: rank r gets the combination of the vectors of ranks 0 to r, in rank order."""

from __future__ import annotations

from ..schedule.cuts import per_segment
from ..schedule.moves import BEFORE, Reduce, Schedule, Send
from ..schedule.registry import algorithm
from .patterns import in_parallel


@algorithm()
def naive(rank: int, size: int, first: int = 0) -> Schedule:
    """Each rank in turn combines the result of its predecessor with its own vector, and sends the result on.

    Rounds: p-1
    Messages: 1
    Sent: Z
    Received: Z
    Cost: (p-1)*alpha + (p-1)*Z*beta + (p-1)*Z*gamma
    Source: the definition of MPI_Scan in the MPI standard.
    """
    if rank > first:
        yield (Reduce(rank - 1, [0], BEFORE),)
    if first <= rank < size - 1:
        yield (Send(rank + 1, [0]),)


@algorithm()
def tree(rank: int, size: int, first: int = 0) -> Schedule:
    """Recursive doubling: in round n, rank r sends its partial result to rank r + 2**n.

    Rounds: lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: lg(p)*Z
    Cost: lg(p)*alpha + lg(p)*Z*beta + lg(p)*Z*gamma
    Limits: best for short vectors.
    Source: Hillis and Steele, "Data parallel algorithms", Communications of the ACM 29 (1986).
    """
    distance = 1
    while distance < size - first and rank >= first:
        sends = [Send(rank + distance, [0])] if rank + distance < size else []
        receives = [Reduce(rank - distance, [0], BEFORE)] if rank - distance >= first else []
        yield (*sends, *receives)
        distance *= 2


@algorithm(cut=per_segment)
def ring(rank: int, size: int, segments: int, first: int = 0) -> Schedule:
    """Pipelined chain: each rank receives and combines a segment while it sends the one before.

    Rounds: S+p-2
    Messages: S
    Sent: Z
    Received: Z
    Cost: (S+p-2)*alpha + (S+p-2)/S*Z*beta + (S+p-2)/S*Z*gamma
    Limits: best for long vectors cut into many segments.
    Source: Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006, the linear pipeline.
    """
    if rank >= first:
        incoming = [Reduce(rank - 1, [s], BEFORE) for s in range(segments)] if rank > first else []
        outgoing = [Send(rank + 1, [s]) for s in range(segments)] if rank < size - 1 else []
        yield from in_parallel(incoming, [None, *outgoing] if incoming else outgoing)
