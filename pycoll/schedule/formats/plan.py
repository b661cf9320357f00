"""The rounds that a file is written from, and where their blocks are in the buffers of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from ..document import assembled, rounds_of
from ..hosts import Hosts
from ..moves import Block, Blocks, Combine, Copy, Move, Recv, Reduce, Round, Send
from ..registry import Algorithm
from .cells import COLLECTIVES, SCRATCH, Buffers, Cell


class GraphTask(NamedTuple):
    """A message or a computation of a rank; it needs the tasks `after`, which are counted from 0."""

    round: int
    move: Move
    is_message: bool
    after: list[int]


@dataclass(frozen=True)
class ExportedSchedule:
    """The rounds of all ranks, the bytes of blocks, and the time to combine a byte, in seconds."""

    algorithm: Algorithm
    ranks: int
    root: int
    parts: int
    rounds: Sequence[Sequence[Round]]
    nbytes: Callable[[Blocks], int]
    gamma: float

    def document(self) -> dict[str, Any]:
        """Return the document of the rounds."""
        named = self.algorithm.primitive.name, self.algorithm.name
        return assembled(*named, self.ranks, self.root, self.parts, self.algorithm.ordered, self.rounds)

    def tasks(self, rank: int, copies: bool) -> Iterator[GraphTask]:
        """Yield what a rank does, for graphs: each round needs the last tasks of the round before."""
        computations = (Reduce, Combine, Copy) if copies else (Reduce, Combine)
        before: list[int] = []
        count = 0
        for at, moves in enumerate(self.rounds[rank]):
            ends: list[int] = []
            for move in moves:
                kinds = [True] * isinstance(move, (Send, Recv, Reduce)) + [False] * isinstance(move, computations)
                needed = before
                for is_message in kinds:
                    yield GraphTask(at, move, is_message, needed)
                    needed, count = [count], count + 1
                ends += needed if kinds else []
            before = ends or before

    def seconds(self, move: Move) -> float:
        """Return the seconds in which a move combines blocks."""
        combined = move.blocks if isinstance(move, Reduce) else [move.into] if isinstance(move, Combine) else []
        return self.nbytes(combined) * self.gamma


def plan_of(
    algorithm: Algorithm,
    ranks: int,
    root: int = 0,
    segments: int = 1,
    hosts: Hosts = None,
    nbytes: Callable[[Blocks], int] = len,
    gamma: float = 0.0,
) -> ExportedSchedule:
    """Return the plan of an algorithm; ValueError if it depends on lengths that the caller gives."""
    rounds, parts = rounds_of(algorithm, ranks, root, segments, hosts), algorithm.parts(ranks, segments, hosts)
    return ExportedSchedule(algorithm, ranks, root, parts, rounds, nbytes, gamma)


class Allocation:
    """The cells of the blocks of each rank, in place if the collective allows it."""

    def __init__(self, plan: ExportedSchedule, format: str) -> None:
        primitive = plan.algorithm.primitive
        if primitive.name not in COLLECTIVES:
            raise ValueError(f"{format} has no name for {primitive.name}: it expresses {', '.join(COLLECTIVES)}")
        self.buffers = Buffers(primitive, plan.ranks, plan.parts, 1, primitive.name != "alltoall")
        self.cells: list[dict[Block, Cell]] = []
        self.scratch = [0] * plan.ranks
        for rank in range(plan.ranks):
            ends = {part.block: cell for cell, part in self.buffers.end(rank).items()}
            self.cells.append(ends | {part.block: cell for cell, part in self.buffers.start(rank).items()})

    def cell(self, rank: int, block: Block) -> Cell:
        """Return the cell of a block: in the input, in the output, or in scratch memory."""
        if block not in self.cells[rank]:
            self.cells[rank][block] = self.new(rank)
        return self.cells[rank][block]

    def new(self, rank: int) -> Cell:
        """Return a new cell of scratch memory."""
        self.scratch[rank] += 1
        return Cell(rank, SCRATCH, self.scratch[rank] - 1)

    def last_copies(self, rank: int) -> list[tuple[Cell, Cell]]:
        """Return the blocks of the result that are in the input, and where they belong."""
        ends = self.buffers.end(rank).items()
        return [(self.cells[rank][part.block], cell) for cell, part in ends if self.cells[rank][part.block] != cell]

    def size(self, buffer: str) -> int:
        """Return the number of chunks of the input or of the output, for a file."""
        primitive, parts = self.buffers.primitive, self.buffers.parts
        indices = primitive.holds if buffer == "i" else primitive.wants
        return len(indices(0, self.buffers.ranks, 0, parts))


def runs(pairs: Sequence[tuple[Cell, Cell]]) -> Iterator[tuple[Cell, Cell, int]]:
    """Join pairs of cells that follow each other in both buffers; yield the first pair of each run, and its length."""
    starts = [0, *(number for number, (one, other) in enumerate(pairwise(pairs), 1) if not _follows(one, other))]
    for start, end in zip(starts, [*starts[1:], len(pairs)]):
        if pairs:
            yield *pairs[start], end - start


def _follows(one: tuple[Cell, Cell], other: tuple[Cell, Cell]) -> bool:
    return all(cell._replace(offset=cell.offset + 1) == after for cell, after in zip(one, other))
