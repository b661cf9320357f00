"""Operations on chunks: what the files of MSCCL and MSCCL++ have in common.

An operation runs on one rank.  It assigns to cells, its own or those of other ranks, the sum of cells.  It runs after
others, because they are before it in a thread block, or because it waits for a message or a signal.  `in_order`,
`check_races` and `steps` check them together:

- there is no deadlock, and every message and signal comes;
- there is no race: of two operations that access one cell, one of which writes it, one happens before the other.
  Therefore, all orders give the same result;
- no operation reads a cell that nothing has written, or combines a contribution with itself;
- in the end, the output of each rank is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ...base.numbers import MOST, listed
from ..diagnosis import wrong_contributions
from ..moves import Block
from .cells import Buffers, Cell

Queues = Sequence[Sequence[tuple[int, int]]]  # for each queue, operations, and those that make room for them


class NoAlgorithm(ValueError):
    """Raised for a file that is right, but is no algorithm of pycoll; the text says what is proved."""


class Assignment(NamedTuple):
    """The sum of the cells `of`, from left to right, replaces each of the cells `to`; none of them is only read."""

    to: tuple[Cell, ...]
    of: tuple[Cell, ...]


@dataclass
class Instruction:
    """An operation of a rank; `location` tells where it is in the file."""

    rank: int
    location: str
    assignments: list[Assignment] = field(default_factory=list)
    after: list[int] = field(default_factory=list)  # the operations that happen before it, by number
    waits: list[int] = field(default_factory=list)  # those that it waits for without seeing what they wrote
    lacks: str = ""  # what never comes, and it waits for

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.location}"


class ChunkValue(NamedTuple):
    """What a cell holds: a chunk of a block, and the contributions that it combines, in order."""

    block: Block
    chunk: int
    ranks: tuple[int, ...]

    def least(self) -> int:
        """Return the rank that decides which operand of a combination is on the left: the one with the lower rank."""
        return min(self.ranks)

    def plus(self, other: ChunkValue) -> ChunkValue:
        """Return the combination with another value of the same chunk."""
        left, right = (self, other) if self.least() < other.least() else (other, self)
        return ChunkValue(self.block, self.chunk, left.ranks + right.ranks)


def add_ends(operations: list[Instruction], buffers: Buffers) -> None:
    """Add the end of each rank, which reads its output."""
    for rank in range(buffers.ranks):
        last = [number for number, each in enumerate(operations) if each.rank == rank]
        reads = [Assignment((), (cell,)) for cell in buffers.end(rank)]
        operations.append(Instruction(rank, "end", reads, last))


def in_order(operations: Sequence[Instruction], queues: Queues = ()) -> list[int]:
    """Return the numbers of operations in an order in which they can run; raise ValueError if there is none."""
    before = [{*each.after, *each.waits} for each in operations]
    for queue in queues:
        for blocked, frees in queue:
            before[blocked] = before[blocked] | {frees}
    following: list[list[int]] = [[] for _ in operations]
    for number, needed in enumerate(before):
        for each in needed:
            following[each].append(number)
    left = [len(needed) + bool(each.lacks) for needed, each in zip(before, operations)]
    level, order = [0] * len(operations), [number for number, count in enumerate(left) if not count]
    for number in order:
        for each in following[number]:
            left[each] -= 1
            level[each] = max(level[each], level[number] + 1)
            if not left[each]:
                order.append(each)
    if len(order) < len(operations):
        raise ValueError(_stuck(operations, [before[number] if left[number] else set() for number in range(len(left))]))
    return sorted(order, key=lambda number: (level[number], number))


def _stuck(operations: Sequence[Instruction], before: Sequence[set[int]]) -> str:
    """Describe why operations cannot run: a message that never comes, or a circle; `before` is empty if one ran."""
    for each in operations:
        if each.lacks:
            return f"deadlock: {each} waits for {each.lacks}"
    chain = [next(number for number, needed in enumerate(before) if needed)]
    while chain.count(chain[-1]) == 1:
        chain.append(next(number for number in sorted(before[chain[-1]]) if before[number]))
    circle = [str(operations[number]) for number in chain[chain.index(chain[-1]) :]]
    steps = [f"{one} waits for {other}" for one, other in pairwise(circle)]
    more = [f"{len(steps) - MOST} more do so"] if len(steps) > MOST else []
    return f"deadlock: {listed([*steps[:MOST], *more])}"


def happening_before(operations: Sequence[Instruction], order: Sequence[int]) -> list[int]:
    """Return the operations that happen before each one, as a bit set of their numbers."""
    before = [0] * len(operations)
    for number in order:
        for each in operations[number].after:
            before[number] |= before[each] | 1 << each
    return before


def check_races(operations: Sequence[Instruction], order: Sequence[int]) -> None:
    """Raise ValueError if two operations access a cell, one of them writes it, and neither happens before the other."""
    before = happening_before(operations, order)
    written: dict[Cell, int] = {}
    readers: dict[Cell, list[int]] = {}
    for number in order:
        reads, writes = _accessed(operations[number])
        for cell in {*reads, *writes}:
            others = [written[cell]] if cell in written else []
            for other in [*others, *(readers.get(cell, ()) if cell in writes else ())]:
                if not before[number] >> other & 1:
                    both = f"{operations[other]} and {operations[number]}"
                    raise ValueError(f"race: {both} access {cell} of rank {cell.rank}, and neither waits for the other")
            if cell in writes:
                written[cell], readers[cell] = number, []
            else:
                readers.setdefault(cell, []).append(number)


def _accessed(operation: Instruction) -> tuple[set[Cell], set[Cell]]:
    """Return the cells that an operation reads and writes; ValueError if it moves a range onto a part of itself."""
    reads = {cell for each in operation.assignments for cell in each.of}
    writes = [cell for each in operation.assignments for cell in each.to]
    for each in operation.assignments:
        if clash := (reads - {*each.of}) & {*each.to}:
            raise ValueError(f"race: {operation} reads and writes {min(clash)} for different chunks")
    if len(writes) > len({*writes}):
        raise ValueError(f"race: {operation} writes a chunk twice")
    return reads, {*writes}


class Execution(NamedTuple):
    """An assignment, the rank that does it, and the values of the cells that it reads."""

    rank: int
    assignment: Assignment
    values: list[ChunkValue]


def steps(operations: Sequence[Instruction], order: Sequence[int], buffers: Buffers) -> Iterator[Execution]:
    """Run the operations on symbols; raise ValueError if one of them, or the output of a rank, is wrong."""
    held: dict[Cell, ChunkValue] = {}
    writers: dict[Cell, str] = {}
    for rank in range(buffers.ranks):
        held.update((cell, ChunkValue(*part, (rank,))) for cell, part in buffers.start(rank).items())
    for number in order:
        here = operations[number]
        results: list[tuple[Cell, ChunkValue]] = []
        for each in here.assignments:
            if not each.to:
                _check_output(here.rank, each.of[0], held, writers, buffers)
            if unwritten := [cell for cell in each.of if cell not in held]:
                raise ValueError(f"{here} reads {unwritten[0]} of rank {unwritten[0].rank}, which nothing has written")
            values = [held[cell] for cell in each.of]
            results += [(cell, _sum(values, here)) for cell in each.to]
            yield Execution(here.rank, each, values)
        for cell, value in results:
            held[cell], writers[cell] = value, str(here)


def _sum(values: Sequence[ChunkValue], here: Instruction) -> ChunkValue:
    total = values[0]
    for value in values[1:]:
        if value[:2] != total[:2]:
            raise ValueError(f"{here} combines block {_name(total)} with block {_name(value)}")
        if again := {*value.ranks} & {*total.ranks}:
            whose = f"the contribution of rank {min(again)} to block {_name(value)}"
            raise ValueError(f"{here} reduces {whose} a second time")
        total = total.plus(value)
    return total


def _name(value: ChunkValue) -> str:
    return f"{value.block}" + (f", chunk {value.chunk}" if value.chunk else "")


def _check_output(
    rank: int, cell: Cell, held: dict[Cell, ChunkValue], writers: dict[Cell, str], buffers: Buffers
) -> None:
    part, value = buffers.end(rank)[cell], held.get(cell)
    wanted = _name(ChunkValue(*part, ()))
    if value is None:
        raise ValueError(f"rank {rank} ends without block {wanted}: no step writes {cell}")
    by = f"{writers[cell]} wrote it last" if cell in writers else "no step writes it"
    if value[:2] != part:
        raise ValueError(f"rank {rank} ends with block {_name(value)} as block {wanted} in {cell}: {by}")
    promised = tuple(buffers.primitive.contributors(rank, buffers.ranks))
    if buffers.primitive.reduces and (wrong := wrong_contributions(value.ranks, promised)):
        raise ValueError(f"rank {rank}, block {wanted}: the result in {cell} {wrong}: {by}")
