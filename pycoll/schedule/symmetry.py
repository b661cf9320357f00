"""Symmetric schedules: the rounds of rank 0, moved on a grid of ranks, are those of all ranks.

A grid is closed in each dimension, and its ranks are numbered as an array in C order.  Rank r adds its coordinates to
those of each peer of rank 0, and to those of each block that it sends or receives, if there is a block for each rank.
On a grid whose sides are 2, this is the exclusive or of both numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from .endless import timed
from .moves import Block, Combine, Copy, Move, Recv, Reduce, Send
from .registry import Algorithm

KINDS = Send, Recv, Reduce, Combine, Copy


class NotSymmetric(ValueError):
    """A schedule is not as symmetric as its algorithm says."""


class Described(NamedTuple):
    """What a network sees of a move."""

    kind: int  # the number in `KINDS`
    peer: int  # the rank itself for a local move
    blocks: list[int]  # the indices of the blocks, in increasing order


def moved(number: int, rank: int, sides: tuple[int, ...]) -> int:
    """Return the rank whose coordinates are the sums of those of two ranks."""
    found, stride = 0, 1
    for side in reversed(sides):
        found += (number + rank) % side * stride
        number, rank, stride = number // side, rank // side, stride * side
    return found


def described(algorithm: Algorithm, rank: int, size: int) -> list[list[Described]]:
    """Return the rounds of a rank, the sends of each round first."""
    rounds = timed(algorithm.schedule(rank, size))
    return [sorted((_described(move, rank) for move in moves), key=_after_sends) for moves in rounds]


def _described(move: Move, rank: int) -> Described:
    kind = KINDS.index(type(move))
    if isinstance(move, (Combine, Copy)):
        return Described(kind, rank, [_index(move.into if isinstance(move, Combine) else move.to)])
    return Described(kind, move.to if isinstance(move, Send) else move.source, sorted(map(_index, move.blocks)))


def _index(block: Block) -> int:
    return block[-1] if isinstance(block, tuple) else block  # type: ignore[return-value]


def _after_sends(move: Described) -> bool:
    return move.kind > 0


def symmetric_rounds(algorithm: Algorithm, size: int, checked: Iterable[int]) -> list[list[Described]] | None:
    """Return the rounds of rank 0, from which those of all ranks follow; None if the schedule is not symmetric.

    Raises
    ------
    NotSymmetric
        If the rounds of one of the ranks `checked` do not follow.
    """
    sides = algorithm.symmetry(size) if algorithm.symmetry else ()
    if not sides:
        return None
    first, fixed = described(algorithm, 0, size), algorithm.parts(size) < size
    for rank in checked:

        @cache
        def shifted(number: int, rank: int = rank) -> int:
            return number // size * size + moved(number % size, rank, sides)

        def follow(move: Described, shifted: Callable[[int], int] = shifted) -> Described:
            return Described(move.kind, shifted(move.peer), move.blocks if fixed else sorted(map(shifted, move.blocks)))

        if described(algorithm, rank, size) != [[follow(move) for move in moves] for moves in first]:
            raise NotSymmetric(f"{algorithm} on {size} ranks is not symmetric: the rounds of rank {rank} do not follow")
    return first
