"""The challenges, from easy to hard.  The docstring of each one is its task, and what follows is to be mended.

None of them is an algorithm of pycoll.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..schedule.cuts import per_rank, whole
from ..schedule.moves import AFTER, BEFORE, Recv, Reduce, Schedule, Send
from ..schedule.proof import Counts
from ..schedule.registry import Algorithm
from .edited import Goal, Verdict, examine, read


class Challenge(NamedTuple):
    """A schedule to mend: its name, its primitive, the task, the text to begin with, and the goal."""

    name: str
    primitive: str
    task: str
    text: str
    goal: Goal | None


CHALLENGES: dict[str, Challenge] = {}


def read_challenge(name: str, text: str) -> Algorithm:
    """Return the algorithm that a text defines instead of the challenge with this name."""
    return read(CHALLENGES[name].primitive, text, globals(), lambda found: found)


def judge(name: str, text: str) -> Verdict:
    """Prove what a text defines instead of the challenge with this name, and compare it with the goal."""
    return examine(lambda: read_challenge(name, text), CHALLENGES[name].goal)


def challenge(primitive: str, goal: Goal | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a challenge of a generator."""

    def register(generator: Callable[..., Any]) -> Callable[..., Any]:
        source = inspect.getsource(generator)
        text, task = source[source.index("@algorithm") :], " ".join((generator.__doc__ or "").split())
        CHALLENGES[generator.__name__] = Challenge(generator.__name__, primitive, task, text, goal)
        return generator

    return register


def algorithm(cut: Any = whole, ordered: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register nothing: the text is read again when it has been mended."""
    return lambda generator: generator


def most_rounds(formula: str, limit: Callable[[int], float]) -> Goal:
    """Require at most so many rounds on p ranks."""

    def goal(algorithm: Algorithm, size: int, counts: Counts) -> str:
        more = counts.rounds > limit(size)
        return f"it has {counts.rounds} rounds on {size} ranks; {formula} is {limit(size):g}" if more else ""

    return goal


def most_bytes(formula: str, limit: Callable[[int], float]) -> Goal:
    """Require that the busiest of p ranks sends at most so many vectors."""

    def goal(algorithm: Algorithm, size: int, counts: Counts) -> str:
        sent = max(counts.sent, default=0)
        more = sent > limit(size) + 1e-9
        return f"a rank sends {sent:.3g} Z on {size} ranks; {formula} is {limit(size):.3g} Z" if more else ""

    return goal


def one_message_a_round(algorithm: Algorithm, size: int, counts: Counts) -> str:
    """Require at most p rounds, in which no rank sends two messages."""
    if counts.rounds > size:
        return f"it has {counts.rounds} rounds on {size} ranks"
    for rank in range(size):
        for moves in algorithm.schedule(rank, size):
            if (sends := sum(isinstance(move, Send) for move in moves)) > 1:
                return f"rank {rank} of {size} sends {sends} messages in one round"
    return ""


@challenge("bcast")
@algorithm()
def chain(rank: int, size: int, root: int) -> Schedule:
    """The vector goes along a chain that begins at the root, but the ranks send it before they have it."""
    relative = (rank - root) % size
    if relative < size - 1:
        yield (Send((rank + 1) % size, [0]),)
    if relative > 0:
        yield (Recv((rank - 1) % size, [0]),)


@challenge("allgather")
@algorithm()
def forward(rank: int, size: int) -> Schedule:
    """In each round, a rank of the ring should forward the block that it has received in the round before."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for _ in range(size - 1):
        yield Send(right, [rank]), Recv(left, [left])


@challenge("allgather")
@algorithm()
def everyone_waits(rank: int, size: int) -> Schedule:
    """All ranks send first, and nobody receives: a send may wait for its receive. Which moves belong together?"""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield (Send(right, [(rank - step) % size]),)
        yield (Recv(left, [(left - step) % size]),)


@challenge("barrier")
@algorithm()
def release(rank: int, size: int) -> Schedule:
    """Rank 0 hears from all others. But may they leave the barrier when they have sent their message?"""
    if rank > 0:
        yield (Send(0, []),)
    for other in range(1, size) if rank == 0 else []:
        yield (Recv(other, []),)


@challenge("gather")
@algorithm()
def any_root(rank: int, size: int, root: int) -> Schedule:
    """The gather is right if rank 0 is the root. Make it right for any root."""
    if rank != 0:
        yield (Send(0, [rank]),)
    for other in range(1, size) if rank == 0 else []:
        yield (Recv(other, [other]),)


@challenge("reduce")
@algorithm()
def rank_order(rank: int, size: int, root: int) -> Schedule:
    """Contributions must be combined in rank order, because the operation may not commute. One word is wrong."""
    for other in range(root - 1, -1, -1) if rank == root else []:
        yield (Reduce(other, [0], BEFORE),)
    for other in range(root + 1, size) if rank == root else []:
        yield (Reduce(other, [0], BEFORE),)
    if rank != root:
        yield (Send(root, [0]),)


@challenge("allreduce")
@algorithm(ordered=False)
def counted_twice(rank: int, size: int) -> Schedule:
    """Each rank sends what it has to the right, and adds what comes from the left. What does it send the second time?

    One way: let a chain add up the vectors, and send the sum back.
    """
    for _ in range(size - 1):
        yield Send((rank + 1) % size, [0]), Reduce((rank - 1) % size, [0])


@challenge("bcast", most_rounds("lg(p)", lambda p: math.ceil(math.log2(p))))
@algorithm()
def logarithm(rank: int, size: int, root: int) -> Schedule:
    """Broadcast in lg(p) rounds: a rank that has the vector can send it as well as the root."""
    for other in range(size):
        if rank == root and other != root:
            yield (Send(other, [0]),)
        if rank == other and other != root:
            yield (Recv(root, [0]),)


@challenge("alltoall", one_message_a_round)
@algorithm()
def one_at_a_time(rank: int, size: int) -> Schedule:
    """All messages at once may block a network. Send at most one message in each round, in at most p rounds."""
    others = [other for other in range(size) if other != rank]
    if others:
        yield (*(Send(other, [(rank, other)]) for other in others), *(Recv(other, [(other, rank)]) for other in others))


@challenge("reduce_scatter", most_bytes("(p-1)/p", lambda p: (p - 1) / p))
@algorithm(ordered=False)
def blank(rank: int, size: int) -> Schedule:
    """Write a reduce-scatter in which no rank sends more than (p-1)/p of a vector. Rank r wants block r of the sum."""
    yield from ()


@challenge("allreduce", most_bytes("2(p-1)/p", lambda p: 2 * (p - 1) / p))
@algorithm(cut=per_rank, ordered=False)
def half_the_bytes(rank: int, size: int) -> Schedule:
    """The last rank sends p-1 vectors; 2(p-1)/p of a vector are enough for each rank. The vector has a part for each
    rank: blocks 0 to p-1.
    """
    parts = range(size)
    if rank > 0:
        yield (Reduce(rank - 1, parts),)
    if rank < size - 1:
        yield (Send(rank + 1, parts),)
    for other in range(size - 1):
        if rank == size - 1:
            yield (Send(other, parts),)
        if rank == other:
            yield (Recv(size - 1, parts),)


@challenge("allreduce", most_rounds("lg(p) + 2", lambda p: math.ceil(math.log2(p)) + 2))
@algorithm(ordered=False)
def five_ranks(rank: int, size: int) -> Schedule:
    """Recursive doubling is right if p is a power of two. Make it right for all p, in at most lg(p) + 2 rounds."""
    distance = 1
    while distance < size:
        yield Send(rank ^ distance, [0]), Reduce(rank ^ distance, [0], AFTER if rank & distance == 0 else BEFORE)
        distance *= 2
