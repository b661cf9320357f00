"""Programs for slots: memory of a host in which each rank publishes pieces of its input, for the others to read.

Such a program has no messages.  Each rank copies a piece of its input to its slot, unless no other rank reads it, and
posts READY.  Then each rank computes what it wants from the slots of the others, in the order of combination of the
algorithm.  If a long vector is wanted by several ranks, each rank combines a share of the piece, puts the result beside
its slot, and posts DONE; the others copy it.  `pycoll.core.slots` runs these programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from ..schedule.moves import Block
from ..schedule.symbols import Expression, Leaf, contributors
from .layout import layout
from .program import (
    DONE,
    INPUT,
    OUTPUT,
    READY,
    SCRATCH,
    SLOTS,
    Apply,
    Await,
    CopyBytes,
    Divide,
    Post,
    Region,
    Step,
    peer_buffer,
)
from .program_key import ProgramKey
from .storage import ALIGNMENT, aligned

TINY, SHORT, MEDIUM, LONG = range(4)
CLOSE = 16  # bytes: short blocks begin at multiples of it, so that few cache lines travel; the alignment of numbers


class SlotProgram(NamedTuple):
    """The turns of one rank.

    Turn i is for the bytes from ``i * piece`` on, of the vector or of each block: its regions are relative to them.
    """

    turns: tuple[tuple[Step, ...], ...]
    piece: int
    slots: int  # the kind of slots, the same on all ranks: TINY, SHORT, MEDIUM or LONG


@lru_cache(maxsize=512)
def slot_program(key: ProgramKey, mean: bool = False) -> SlotProgram:
    """Return the program of one rank; with `mean`, results are divided by the number of ranks."""
    return _Compiler(key, mean).program()


class _Compiler:
    def __init__(self, key: ProgramKey, mean: bool) -> None:
        self.key, self.mean = key, mean
        self.primitive, self.layout = key.algorithm.primitive, layout(key)
        self.parts = key.algorithm.parts(key.size)

    def program(self) -> SlotProgram:
        """Compile all turns."""
        if self.primitive.name == "barrier":
            return SlotProgram((tuple(self._barrier()),), 1, TINY)
        if self.key.size == 1:
            steps = tuple(self._copies())
            return SlotProgram((steps,), 1, MEDIUM if sum(copy.to.size for copy in steps) > SLOTS[SHORT][0] else TINY)
        most = (
            self.key.size if self.primitive.reduces and self.primitive.takes_all else max(map(len, self.exports)) or 1
        )
        close = aligned(self.longest, CLOSE)
        if most * close <= SLOTS[TINY][0]:
            slots, piece = TINY, close
        elif most * close <= SLOTS[SHORT][0]:
            slots, piece = SHORT, close
        else:  # a single block is copied in short pieces, so that its reader begins soon
            slots = LONG if self.shares or most > 1 else MEDIUM
            if self.key.neighbors and most * aligned(self.longest) <= SLOTS[MEDIUM][0]:
                slots = MEDIUM
            piece = SLOTS[slots][0] // most // ALIGNMENT * ALIGNMENT
        starts = range(0, self.longest, piece or 1)
        turns: dict[Any, tuple[Step, ...]] = {}
        chosen = []
        for start in starts:
            sizes = {block: max(0, min(piece, self.layout.size(block) - start)) for block in self._all_blocks()}
            identity = tuple(sizes.values())
            if identity not in turns:
                turns[identity] = tuple(_Turn(self, sizes, slots).steps())
            chosen.append(turns[identity])
        return SlotProgram(tuple(chosen), piece, slots)

    def _barrier(self) -> Iterator[Step]:
        yield Post(READY)
        yield from (Await(rank, READY) for rank in range(self.key.size) if rank != self.key.rank)

    def _copies(self) -> Iterator[CopyBytes]:
        """What one rank does, whose blocks pass through no slot."""
        wanted = self.layout.wanted
        for block in wanted:
            yield from _copy(self.layout.held[block], wanted[block])
        for block, region in self.layout.again:
            yield from _copy(wanted[block], region)

    @cached_property
    def exports(self) -> list[list[Block]]:
        """The blocks that other ranks read in the slot of each rank."""
        return [self._exported(rank) for rank in range(self.key.size)]

    @cached_property
    def longest(self) -> int:
        """The bytes of the longest block."""
        return max(map(self.layout.size, self._all_blocks()), default=0)

    @cached_property
    def wanted(self) -> list[dict[Block, Expression]]:
        """What each rank wants: a block that another rank holds, or a combination of contributions."""
        if self.key.neighbors:
            return self._wanted_from_neighbors()
        where = self.key.size, self.key.root, self.parts
        wants = [list(self.primitive.wants(rank, *where)) for rank in range(self.key.size)]
        if self.primitive.reduces:
            from ..primitives.direct import results_of  # it imports all algorithms

            results: list[Any] = results_of(self.key.algorithm, self.key.size, self.key.root, 1, None)
            numbers: list[list[Any]] = wants
            return [{block: results[block].wanted[rank] for block in blocks} for rank, blocks in enumerate(numbers)]
        source = {block: rank for rank in range(self.key.size) for block in self.primitive.holds(rank, *where)}
        return [{block: Leaf(source[block], block) for block in blocks} for blocks in wants]

    def _wanted_from_neighbors(self) -> list[dict[Block, Expression]]:
        from ..schedule.neighbors import stencil_neighbors

        assert self.key.neighbors and self.key.neighbors.stencil
        edges = [stencil_neighbors(rank, self.key.neighbors.stencil) for rank in range(self.key.size)]
        block_of = self.primitive.block_of
        return [{block_of(edge): Leaf(edge.source, block_of(edge)) for edge in each.incoming if edge} for each in edges]

    def _exported(self, rank: int) -> list[Block]:
        """The blocks that other ranks read in the slot of a rank, in their order there."""
        found = {
            expression.block if isinstance(expression, Leaf) else block: None
            for other, wanted in enumerate(self.wanted)
            for block, expression in wanted.items()
            if other != rank and rank in contributors(expression)
        }
        return list(found)

    def _all_blocks(self) -> list[Block]:
        return list(dict.fromkeys([*self.layout.held, *self.layout.wanted, *(b for one in self.exports for b in one)]))

    @property
    def shares(self) -> bool:
        """Whether long pieces are combined in shares, because several ranks want the result, or one has much to do."""
        return self.primitive.name == "allreduce" or (self.primitive.name == "reduce" and self.key.size > 2)


class _Turn:
    """Compiles one turn, in which blocks have these sizes."""

    def __init__(self, compiler: _Compiler, sizes: dict[Block, int], slots: int) -> None:
        self.all, self.key, self.sizes, self.slots = compiler, compiler.key, sizes, slots
        self.rank, self.size = compiler.key.rank, compiler.key.size
        self.scratch = 0
        self.ready: set[int] = set()  # the ranks that were awaited
        self.copied = {*compiler.exports[self.rank]}
        # a result replaces the contribution of a rank that works in place, so it is read in the slot; but not if each
        # element of the result is computed at once, from the one that it replaces
        at_once = self.size == 2 and len(compiler.layout.held) == 1
        self.replaces = self.key.in_place and compiler.primitive.reduces and not at_once
        if self.replaces:
            self.copied |= {*compiler.layout.held}

    def steps(self) -> Iterator[Step]:
        """Generate the steps."""
        held = self.all.layout.held
        if self.all.shares and self.slots == LONG:
            yield from self._in_shares()
            return
        for block in [block for block in self._slot_order(self.rank) if block in self.copied]:
            yield from _copy(self._part(held[block], block), self._slot(self.rank, block))
        if self.all.exports[self.rank]:
            yield Post(READY)
        wanted = self.all.layout.wanted
        for block in sorted(wanted, key=self._distance):
            yield from self._compute(self.all.wanted[self.rank][block], block, self._part(wanted[block], block))
        for block, region in self.all.layout.again:
            yield from _copy(self._part(wanted[block], block), self._part(region, block))

    def _distance(self, block: Block) -> int:
        """How far the source of a block is from this rank: ranks begin with different sources."""
        return min((rank - self.rank) % self.size for rank in contributors(self.all.wanted[self.rank][block]))

    def _in_shares(self) -> Iterator[Step]:
        """Each rank combines a share of the vector; ranks that want the result copy all shares."""
        held, wanted, shares = self.all.layout.held[0], self.all.layout.wanted.get(0), self._shares()
        slot = Region(peer_buffer(self.rank, INPUT), 0, self.sizes[0])
        mine = shares[self.rank]
        for start, end in ((0, mine[0]), (mine[1], self.sizes[0])):  # the others do not read the share of this rank
            yield from _copy(held.part(start, end), slot.part(start, end))
        yield Post(READY)
        result = Region(peer_buffer(self.rank, OUTPUT), 0, self.sizes[0]).part(*mine)
        if result.size:
            expression = next(iter(self.all.wanted[self.key.root if self.all.primitive.rooted else self.rank].values()))
            for rank in contributors(expression):
                yield from self._await(rank)
            yield from self._evaluate(expression, result, lambda rank: self._contribution(rank, mine))
            if self.all.mean:
                yield Divide(result)
        yield Post(DONE)
        if wanted:
            for step in range(self.size):
                rank = (self.rank + step) % self.size
                share = shares[rank]
                if share[0] < share[1]:
                    if rank != self.rank:
                        yield Await(rank, DONE)
                    source = Region(peer_buffer(rank, OUTPUT), 0, self.sizes[0])
                    yield from _copy(source.part(*share), wanted.part(*share))

    def _shares(self) -> list[tuple[int, int]]:
        """The share of each rank, from one cache line to another."""
        nbytes = self.sizes[0]
        ends = [min(nbytes, aligned(nbytes * rank // self.size)) for rank in range(self.size)] + [nbytes]
        return list(pairwise(ends))

    def _contribution(self, rank: int, share: tuple[int, int]) -> Region:
        whole = self.all.layout.held[0] if rank == self.rank else Region(peer_buffer(rank, INPUT), 0, self.sizes[0])
        return whole.part(*share)

    def _compute(self, expression: Expression, block: Block, into: Region) -> Iterator[Step]:
        """Compute what is wanted in this block."""
        if not into.size:
            return
        for rank in contributors(expression):
            yield from self._await(rank)
        if isinstance(expression, Leaf):
            yield from _copy(self._source(expression.rank, expression.block), into)
        else:
            yield from self._evaluate(expression, into, lambda rank: self._source(rank, block))
        if self.all.mean:
            yield Divide(into)

    def _await(self, rank: int) -> Iterator[Step]:
        if rank != self.rank and rank not in self.ready:
            self.ready.add(rank)
            yield Await(rank, READY)

    def _evaluate(self, expression: Any, into: Region, source: Any) -> Iterator[Step]:
        """Combine two values; an operand that is a combination too is computed in the result, or in scratch."""
        operands, regions = [], [into, Region(SCRATCH, self.scratch, into.size)]
        for side in expression:
            if isinstance(side, Leaf):
                operands.append(source(side.rank))
                continue
            operands.append(regions.pop(0))
            if operands[-1].buffer == SCRATCH:
                self.scratch += aligned(into.size)
            yield from self._evaluate(side, operands[-1], source)
        yield Apply(operands[0], operands[1], into)

    def _source(self, rank: int, block: Block) -> Region:
        if rank == self.rank and not self.replaces:
            return self._part(self.all.layout.held[block], block)
        return self._slot(rank, block)

    def _slot_order(self, rank: int) -> list[Block]:
        blocks = self.all.exports[rank]
        return blocks + [block for block in self.all.layout.held if rank == self.rank and block not in blocks]

    def _slot(self, rank: int, block: Block) -> Region:
        """The position of a block in the slot of a rank."""
        start, unit = 0, CLOSE if self.slots <= SHORT else ALIGNMENT
        for other in self._slot_order(rank):
            if other == block:
                break
            start += aligned(self.sizes[other], unit)
        return Region(peer_buffer(rank, INPUT), start, self.sizes[block])

    def _part(self, region: Region, block: Block) -> Region:
        return region._replace(size=self.sizes[block])


def _copy(source: Region, to: Region) -> Iterator[CopyBytes]:
    if to.size and source != to:
        yield CopyBytes(source, to)
