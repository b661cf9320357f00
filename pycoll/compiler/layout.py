"""The layout of a collective: where its blocks are in the buffers of the caller, and their sizes."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ..schedule.moves import Block
from ..schedule.registry import counts_of
from .program import RECV, SEND, Layout, Region
from .program_key import ProgramKey, side_by_side

COUNT_BYTES = 8  # bytes of one count, when ranks exchange counts


def split(count: int, parts: int) -> list[int]:
    """Split `count` elements into `parts` parts as evenly as possible, with the larger parts first."""
    small, larger = divmod(count, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def layout(call: ProgramKey) -> Layout:
    """Return the layout for one rank."""
    if call.counts_missing:
        return _table_of_counts(call)
    if call.neighbors:
        return _between_neighbors(call)
    primitive, parts = call.algorithm.primitive, call.algorithm.parts(call.size, call.segments, call.hosts)
    block_size = call.length * call.itemsize
    sizes = [n * call.itemsize for n in split(call.length, parts)] if primitive.cuts else [block_size] * parts
    even = side_by_side(sizes)
    sends, recvs = call.sends or even, call.recvs or even
    where = (call.rank, call.size, call.root, parts)
    scatter_in_place = call.in_place and primitive.takes_all and primitive.rooted
    holds = primitive.holds_in_place if call.in_place and primitive.holds_in_place else primitive.holds
    source = RECV if call.in_place and not scatter_in_place else SEND
    held = {block: Region(source, *sends[index]) for block, index in holds(*where).items()}
    wanted = {}
    if not scatter_in_place:
        wanted = {block: Region(RECV, *recvs[index]) for block, index in primitive.wants(*where).items()}

    def nbytes(block: Block) -> int:
        if primitive.cuts:
            return sizes[block[-1] if isinstance(block, tuple) else block]  # type: ignore[index]
        if not primitive.varies and not call.sends:
            return block_size
        known = wanted.get(block) or held.get(block)
        if known is None and call.counts is not None:
            row, column = _pair(block)
            return call.counts[row * call.size + column]
        assert known
        return known.size

    return Layout(nbytes, held, wanted)


def _between_neighbors(call: ProgramKey) -> Layout:
    """Return a layout with a block for each edge."""
    assert call.neighbors and call.sends is not None and call.recvs is not None
    (incoming, outgoing, *_), block_of = call.neighbors, call.algorithm.primitive.block_of
    held = {block_of(edge): Region(SEND, *extent) for edge, extent in zip(outgoing, call.sends) if edge}
    wanted = dict[Block, Region]()
    again = list[tuple[Block, Region]]()
    for edge, extent in zip(incoming, call.recvs):
        if edge and wanted.setdefault(block_of(edge), region := Region(RECV, *extent)) != region:
            again.append((block_of(edge), region))
    own = {block: region.size for block, region in (held | wanted).items()}
    if call.counts is not None:
        own = dict(zip(map(block_of, chain(*call.neighbors.here)), call.counts)) | own
    one = next(iter(own.values()), 0)  # without counts, blocks that pass through have the same length
    return Layout(lambda block: own.get(block, one), held, wanted, again)


def _pair(block: Any) -> tuple[int, int]:
    return block if isinstance(block, tuple) else (0, block)


def _table_of_counts(call: ProgramKey) -> Layout:
    """Return a layout with a row in the receive buffer for each rank that sends its counts."""
    extents = side_by_side([count * COUNT_BYTES for count in call.count_rows.values()])
    table: dict[Block, Region] = {
        counts_of(source): Region(RECV, *extent) for source, extent in zip(call.count_rows, extents)
    }
    held: dict[Block, Region] = {block: region for block, region in table.items() if block == counts_of(call.rank)}
    return Layout(lambda block: table[block].size, held, table)
