"""Collectives on a torus of ranks: a schedule for the ranks of one line runs in each dimension.

Ranks are numbered like the elements of an array in C order.  Each rank has two ports in each dimension; the vector is
cut into as many parts, and each part begins at another port, so that all links are busy at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product, zip_longest
from math import prod
from typing import Any

from ..schedule.cuts import ports, sides
from ..schedule.moves import Block, Blocks, Move, Recv, Round, Schedule, Send
from .patterns import reversed_allgather

Line = Callable[[int, int], Schedule]
Rounds = list[list[Round]]  # of each dimension
Order = Callable[[Rounds], Iterator[tuple[int, Round]]]  # yields all rounds, with their dimensions


def in_turn(rounds: Rounds) -> Iterator[tuple[int, Round]]:
    """Yield all rounds of one dimension, then those of the next one."""
    return ((axis, moves) for axis, line in enumerate(rounds) for moves in line)


def alternating(rounds: Rounds) -> Iterator[tuple[int, Round]]:
    """Yield one round of each dimension in turn; shorter dimensions begin later, so that all end together."""
    longest = max(map(len, rounds))
    for step in range(longest):
        for axis, line in enumerate(rounds):
            if step >= longest - len(line):
                yield axis, line[step - longest + len(line)]


class TorusPort:
    """The torus as one port sees it: its dimensions come in another order, and its coordinates may be mirrored."""

    def __init__(self, rank: int, shape: Sequence[int], first: int, mirrored: bool) -> None:
        self.axes = [(first + axis) % len(shape) for axis in range(len(shape))]
        self.strides = [prod(shape[axis + 1 :]) for axis in self.axes]
        self.sizes = [shape[axis] for axis in self.axes]
        self.sign = -1 if mirrored else 1
        self.coordinates = [
            self.sign * (rank // stride) % size for stride, size in zip(self.strides, self.sizes, strict=True)
        ]

    def rank(self, coordinates: Sequence[int]) -> int:
        """Return the rank at these coordinates."""
        return sum(
            self.sign * each % size * stride
            for each, size, stride in zip(coordinates, self.sizes, self.strides, strict=True)
        )

    def allgather(self, line: Line, order: Order, start: int) -> Schedule:
        """All-gather of blocks numbered from `start`: `line` runs in each dimension, its rounds in the given order."""
        held: list[list[Any]] = [
            [coordinate] for coordinate in self.coordinates
        ]  # the coordinates of the blocks that this rank has
        rounds = [list(line(coordinate, size)) for coordinate, size in zip(self.coordinates, self.sizes, strict=True)]
        for axis, moves in order(rounds):

            def blocks(lines: Blocks, axis: int = axis) -> list[int]:
                return [start + self.rank(each) for each in product(*held[:axis], lines, *held[axis + 1 :])]

            def peer(coordinate: int, axis: int = axis) -> int:
                return self.rank([*self.coordinates[:axis], coordinate, *self.coordinates[axis + 1 :]])

            coming: list[Block] = []
            mapped: list[Move] = []
            for move in moves:
                if isinstance(move, Send):
                    mapped.append(Send(peer(move.to), blocks(move.blocks)))
                elif isinstance(move, Recv):
                    mapped.append(Recv(peer(move.source), blocks(move.blocks)))
                    coming += move.blocks
            yield tuple(mapped)
            held[axis] += coming


def allreduce(rank: int, size: int, k: int, line: Line, order: Order) -> Schedule:
    """All-reduce on a torus of k dimensions: a reduce-scatter and an all-gather of each part, at the same time."""
    shape = [side for side in sides(size, k) if side > 1]
    parts = []
    for port in range(ports(size, k) if shape else 0):
        rounds = list(
            TorusPort(rank, shape, port // 2, mirrored=port % 2 == 1).allgather(line, order, start=port * size)
        )
        parts.append([*reversed_allgather(iter(rounds)), *rounds])
    for together in zip_longest(*parts, fillvalue=()):
        yield tuple(move for moves in together for move in moves)
