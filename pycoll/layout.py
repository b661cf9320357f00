"""Where a collective's blocks lie in the caller's buffers, and how many bytes each has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from .compiler import compile_rounds
from .program import RECV, SEND, Layout, Program, Region
from .schedule import Algorithm, Block


def split(count: int, parts: int) -> list[int]:
    """`count` elements in `parts` parts as even as can be, the larger ones first."""
    small, larger = divmod(count, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def _regions(buffer: int, places: dict[Block, int], sizes: Sequence[int]) -> dict[Block, Region]:
    starts = [0, *accumulate(sizes)]
    return {block: Region(buffer, starts[place], sizes[place]) for block, place in places.items()}


class Call(NamedTuple):
    """One rank's part in a collective, but for the addresses: all that its program depends on.

    `length` is the number of elements of the vector for bcast, reduce and allreduce, and of one rank's block
    for the others.  With `in_place` the rank's input lies in its receive buffer; for scatter, its output
    stays in the root's send buffer.  `segments` is a pipelined algorithm's number of them, `longest` the
    longest message in bytes.
    """

    algorithm: Algorithm
    rank: int
    size: int
    root: int
    length: int
    itemsize: int
    in_place: bool
    segments: int
    longest: int


def layout(call: Call) -> Layout:
    """Where the blocks lie for one rank."""
    primitive, parts = call.algorithm.primitive, call.algorithm.parts(call.size, call.segments)
    block_size = call.length * call.itemsize
    sizes = [n * call.itemsize for n in split(call.length, parts)] if primitive.cuts else [block_size] * parts
    where = (call.rank, call.size, call.root, parts)
    scatter_in_place = call.in_place and primitive.name == "scatter"
    holds = primitive.holds_in_place if call.in_place and primitive.holds_in_place else primitive.holds
    held = _regions(RECV if call.in_place and not scatter_in_place else SEND, holds(*where), sizes)
    wanted = {} if scatter_in_place else _regions(RECV, primitive.wants(*where), sizes)

    def nbytes(block: Block) -> int:
        if not primitive.cuts:
            return block_size
        return sizes[block[-1] if isinstance(block, tuple) else block]  # type: ignore[index]

    return Layout(nbytes, held, wanted)


@lru_cache(maxsize=512)
def compiled(call: Call) -> Program:
    """The program of one rank; its messages have whole elements."""
    rounds = call.algorithm.schedule(call.rank, call.size, call.root, call.segments)
    return compile_rounds(rounds, layout(call), max(1, call.longest // call.itemsize) * call.itemsize)
