"""Where a collective's blocks lie in the caller's buffers, and how many bytes each has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

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


def layout(
    algorithm: Algorithm, rank: int, size: int, root: int, count: int, itemsize: int, in_place: bool, segments: int
) -> Layout:
    """The layout for one rank.

    `count` is the number of elements of the vector for bcast, reduce and allreduce, and of one rank's block
    for the others.  With `in_place` the rank's input lies in its receive buffer; for scatter, its output
    stays in the root's send buffer.
    """
    primitive, parts = algorithm.primitive, algorithm.parts(size, segments)
    sizes = [n * itemsize for n in split(count, parts)] if primitive.cuts else [count * itemsize] * parts
    holds, wants = primitive.holds, primitive.wants
    if in_place and primitive.holds_in_place:
        holds = primitive.holds_in_place
    held = _regions(RECV if in_place and primitive.name != "scatter" else SEND, holds(rank, size, root, parts), sizes)
    wanted = _regions(RECV, wants(rank, size, root, parts), sizes)
    if in_place and primitive.name == "scatter":
        wanted = {}

    def nbytes(block: Block) -> int:
        return sizes[block if primitive.cuts and isinstance(block, int) else 0]

    return Layout(nbytes, held, wanted)


@lru_cache(maxsize=512)
def compiled(
    algorithm: Algorithm,
    rank: int,
    size: int,
    root: int,
    count: int,
    itemsize: int,
    in_place: bool,
    segments: int,
    segment: int,
) -> Program:
    """The program of one rank; `segment` is the longest message in bytes."""
    blocks = layout(algorithm, rank, size, root, count, itemsize, in_place, segments)
    whole_items = max(1, segment // max(1, itemsize)) * max(1, itemsize)
    return compile_rounds(algorithm.schedule(rank, size, root, segments), blocks, whole_items)
