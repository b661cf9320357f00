"""The layout of a collective: the positions and sizes of its blocks in the buffers of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from ..schedule.moves import Block, Recv, Round, Send
from ..schedule.registry import Algorithm, Hosts, counts_of
from .lower import compile_rounds
from .program import RECV, SEND, Layout, Program, Region

COUNT_BYTES = 8  # bytes of one count, when ranks exchange counts

Extents = tuple[tuple[int, int], ...]  # (start, size) in bytes, for each block of a buffer


def split(count: int, parts: int) -> list[int]:
    """Split `count` elements into `parts` parts as evenly as possible, with the larger parts first."""
    small, larger = divmod(count, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def side_by_side(sizes: Sequence[int]) -> Extents:
    """Return the extents of contiguous blocks of these sizes."""
    return tuple(zip(accumulate(sizes, initial=0), sizes))


class ProgramKey(NamedTuple):
    """Everything that the program of one rank depends on; addresses are not part of it.

    - `length`: the number of elements of the vector for bcast, reductions to vectors and scans, and of the block of one
      rank for all others; 0 if blocks differ in size;
    - `in_place`: the input is in the receive buffer; for scatter, the output stays in the send buffer of the root;
    - `segments`: the number of segments of a pipelined algorithm;
    - `longest`: the length of the longest message in bytes;
    - `sends`, `recvs`: the positions of input and output, if blocks differ in size;
    - `counts`: the bytes of blocks as other ranks sent them, row by row.  If the algorithm needs counts, a key without
      them is for the part that exchanges them;
    - `hosts`: the hosts of the ranks, if the algorithm depends on them.
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
    sends: Extents | None = None
    recvs: Extents | None = None
    counts: tuple[int, ...] | None = None
    hosts: Hosts = None

    @property
    def counts_missing(self) -> bool:
        """Whether this key is for the part in which the ranks exchange their counts."""
        return self.counts is None and bool(self.algorithm.count_sources(self.size, self.root))

    def with_equal_counts(self) -> ProgramKey:
        """Return the key after the exchange of counts, if all blocks have the same length."""
        sources = self.algorithm.count_sources(self.size, self.root)
        return self._replace(counts=(self.length * self.itemsize,) * (self.size * len(sources)))


def layout(call: ProgramKey) -> Layout:
    """Return the layout for one rank."""
    if call.counts_missing:
        return _table_of_counts(call)
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


def key_of(call: ProgramKey, rank: int) -> ProgramKey:
    """Return the key of another rank in the same call, for its layout.

    Both work in place, or neither.  With a root, only the root may, and only the root knows whether it does.
    """
    call = call._replace(rank=rank)
    if call.algorithm.primitive.name == "bcast":
        return call._replace(in_place=rank == call.root)
    if call.algorithm.primitive.rooted:
        return call._replace(in_place=call.in_place and rank == call.root)
    if call.algorithm.primitive.varies and call.recvs:  # allgatherv
        return call._replace(sends=call.recvs if call.in_place else ((0, call.recvs[rank][1]),))
    if call.sends:  # reduce-scatter with counts
        return call._replace(recvs=((0, call.sends[rank][1]),))
    return call


def longest_message(call: ProgramKey) -> int:
    """Return the length of the longest message in bytes; none ends in the middle of an element."""
    return max(1, call.longest // call.itemsize) * call.itemsize


def _pair(block: Any) -> tuple[int, int]:
    return block if isinstance(block, tuple) else (0, block)


def _table_of_counts(call: ProgramKey) -> Layout:
    """Return a layout with a row in the receive buffer for each rank that sends its counts."""
    row = call.size * COUNT_BYTES
    sources = call.algorithm.count_sources(call.size, call.root)
    table: dict[Block, Region] = {counts_of(source): Region(RECV, i * row, row) for i, source in enumerate(sources)}
    held: dict[Block, Region] = {block: region for block, region in table.items() if block == counts_of(call.rank)}
    return Layout(lambda block: row, held, table)


@lru_cache(maxsize=512)
def compiled(call: ProgramKey) -> Program:
    """Return the program of one rank; no segment ends in the middle of an element."""
    return replace(compile_rounds(rounds_of(call), layout(call), longest_message(call)), name=str(call.algorithm))


def rounds_of(call: ProgramKey) -> list[Round]:
    """Return the rounds of one rank: those that exchange counts, or those after them."""
    rounds = list(call.algorithm.schedule(call.rank, call.size, call.root, call.segments, call.hosts))
    if not call.algorithm.needs_counts:
        return rounds
    first = sum(map(_carries_counts, rounds))
    return rounds[:first] if call.counts_missing else rounds[first:]


def _carries_counts(moves: Round) -> bool:
    """Return whether a round carries only counts."""
    blocks = [block for move in moves if isinstance(move, Send | Recv) for block in move.blocks]
    return bool(blocks) and all(isinstance(block, tuple) and block[0] == counts_of(0)[0] for block in blocks)
