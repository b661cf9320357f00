"""Buffers of chunks, as in the files of MSCCL and MSCCL++: an input, an output and a scratch buffer for each rank.

All chunks have one length.  The blocks of pycoll are in them as in the buffers of a call: `Buffers` tells where each
block is at the start and at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..document import MOST_PARTS
from ..moves import Block
from ..registry import PRIMITIVES, Primitive

INPUT, OUTPUT, SCRATCH = "i", "o", "s"
COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "alltoall")  # those that have a name in these files
NAMES = {"reducescatter": "reduce_scatter"}


class Cell(NamedTuple):
    """A chunk of a buffer of a rank."""

    rank: int
    buffer: str
    offset: int

    def __str__(self) -> str:
        return f"{self.buffer}[{self.offset}]"


class Part(NamedTuple):
    """A chunk of a block."""

    block: Block
    chunk: int


@dataclass(frozen=True)
class Buffers:
    """The buffers of a collective; each of its blocks has so many `chunks`."""

    primitive: Primitive
    ranks: int
    parts: int  # blocks of the vector
    chunks: int
    in_place: bool

    def cell(self, rank: int, buffer: str, offset: int) -> Cell:
        """Return a chunk of a buffer; in place, a chunk of the input and of the output is one cell."""
        name = self.primitive.name
        if self.in_place and name == "allgather" and buffer == INPUT:
            return Cell(rank, OUTPUT, offset + rank * self.chunks)
        if self.in_place and name != "allgather" and buffer == OUTPUT:
            return Cell(rank, INPUT, offset + (rank * self.chunks if name == "reduce_scatter" else 0))
        return Cell(rank, buffer, offset)

    def start(self, rank: int) -> dict[Cell, Part]:
        """Return what the cells of a rank hold at the start."""
        return self._cells(rank, INPUT, self.primitive.holds(rank, self.ranks, 0, self.parts))

    def end(self, rank: int) -> dict[Cell, Part]:
        """Return what the cells of a rank must hold at the end."""
        return self._cells(rank, OUTPUT, self.primitive.wants(rank, self.ranks, 0, self.parts))

    def _cells(self, rank: int, buffer: str, indices: dict[Block, int]) -> dict[Cell, Part]:
        return {
            self.cell(rank, buffer, index * self.chunks + chunk): Part(block, chunk)
            for block, index in indices.items()
            for chunk in range(self.chunks)
        }


def buffers_of(collective: str, ranks: int, counts: Sequence[int], in_place: bool) -> Buffers:
    """Return the buffers of the collective of a file; `counts` are the chunks of the buffers of all ranks."""
    name = NAMES.get(collective, collective)
    if name not in COLLECTIVES:
        raise ValueError(f"the collective {collective!r} is not one of: {', '.join(COLLECTIVES)}")
    most = max(counts, default=0)
    if not 0 < most <= max(MOST_PARTS, ranks**2):
        raise ValueError(f"the buffers have {most} chunks, which is not a number from 1 to {max(MOST_PARTS, ranks**2)}")
    if PRIMITIVES[name].cuts:
        return Buffers(PRIMITIVES[name], ranks, most, 1, in_place)
    if most % ranks:
        raise ValueError(f"{most} chunks are not the same number for each of {ranks} ranks")
    return Buffers(PRIMITIVES[name], ranks, ranks, most // ranks, in_place)
