"""Where blocks are stored while a schedule runs: in the buffers of the caller, or in scratch.

* A block stays where the caller put it until it is first written.  So nothing is copied at the start, and the send
  buffer is never written.  The first reduction is out of place (``out = held + received``).
* A block that is wanted at the end goes to its region of the receive buffer, as soon as that region is free.  All other
  blocks are in scratch, which is reused after the last use of a block.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ..schedule.moves import Block, Combine, Copy, Recv, Reduce, Round, Send
from .program import EMPTY, RECV, SCRATCH, CopyBytes, Layout, Region

ALIGNMENT = 64


def aligned(nbytes: int, unit: int = ALIGNMENT) -> int:
    """Return the number of bytes rounded up to whole cache lines, or to a multiple of another unit."""
    return nbytes + -nbytes % unit


class _Scratch:
    """Scratch memory, allocated by first fit; an allocation lives as long as it has tenants."""

    def __init__(self) -> None:
        self.top = 0
        self._ends: dict[int, int] = {}
        self._tenants: dict[int, set[Hashable]] = {}

    def allocate(self, size: int, tenants: Iterable[Hashable]) -> Region:
        """Allocate memory for these tenants."""
        length = max(aligned(size), ALIGNMENT)
        start = 0
        for taken, end in sorted(self._ends.items()):
            if start + length <= taken:
                break
            start = end
        self._ends[start], self._tenants[start] = start + length, set(tenants)
        self.top = max(self.top, start + length)
        return Region(SCRATCH, start, size)

    def tenants(self, region: Region) -> set[Hashable]:
        """Return the tenants of the allocation that this region is part of; none in the other buffers."""
        if region.buffer == SCRATCH and region.size:
            for start, end in self._ends.items():
                if start <= region.start < end:
                    return self._tenants[start]
        return set()

    def evict(self, tenant: Hashable) -> None:
        """Remove a tenant from all allocations."""
        for tenants in self._tenants.values():
            tenants.discard(tenant)

    def sweep(self) -> None:
        """Free allocations that have no tenants left."""
        for start in [start for start, tenants in self._tenants.items() if not tenants]:
            del self._ends[start], self._tenants[start]


class _Survey:
    """The future of each block: its last read, the messages that send it, and whether it is ever written."""

    def __init__(self, rounds: list[Round]) -> None:
        self.last_read: dict[Block, int] = {}
        self.sent_in: dict[Block, list[tuple[int, Sequence[Block]]]] = {}
        self.written: set[Block] = set()
        for now, moves in enumerate(rounds):
            for move in moves:
                match move:
                    case Send(_, blocks):
                        self.last_read.update(dict.fromkeys(blocks, now))
                        for block in blocks:
                            self.sent_in.setdefault(block, []).append((now, blocks))
                    case Recv(_, blocks):
                        self.written.update(blocks)
                    case Reduce(_, blocks):
                        self.last_read.update(dict.fromkeys(blocks, now))
                        self.written.update(blocks)
                    case Copy(block, to):
                        self.last_read[block] = now
                        self.written.add(to)
                    case Combine(block, into):
                        self.last_read[block] = self.last_read[into] = now
                        self.written.add(into)
        self.dies_after: dict[int, list[Block]] = {}
        for block, now in self.last_read.items():
            self.dies_after.setdefault(now, []).append(block)


class Placement:
    """The region of every block that a rank holds, round by round; copies are appended to `steps`."""

    def __init__(self, rounds: list[Round], layout: Layout, steps: list[Any]) -> None:
        self.layout, self.steps = layout, steps
        self.ahead = _Survey(rounds)
        self.scratch = _Scratch()
        self.now = 0
        self.busy: list[Region] = []  # the regions that messages of this round read or write
        self.where: dict[Block, Region] = {}
        self.displaced: set[Block] = set()  # blocks in the receive buffer that are not in their wanted region
        self.assemblies: dict[tuple[int, tuple[Block, ...]], Region] = {}
        for block, region in layout.held.items():
            self.assign([block], region)

    def end_round(self) -> None:
        """Remove the blocks whose last read was in this round, and free their scratch."""
        self.busy = []
        for block in self.ahead.dies_after.get(self.now, ()):
            if block not in self.layout.wanted:
                self.remove(block)
        self.scratch.evict(("until", self.now))
        self.scratch.sweep()
        self.now += 1

    def unchanging(self) -> list[Block]:
        """Return the wanted blocks that are held at the start and never written, and whose region is free."""
        return [
            block
            for block, home in self.layout.wanted.items()
            if block in self.where and block not in self.ahead.written and self.is_free(home, [block])
        ]

    def total(self, blocks: Sequence[Block]) -> int:
        """Return the total number of bytes of these blocks."""
        return sum(self.layout.size(block) for block in blocks)

    def assign(self, blocks: Sequence[Block], region: Region) -> None:
        """Record that these blocks are now contiguous in this region."""
        start = region.start
        for block in blocks:
            self.remove(block)
            here = Region(region.buffer, start, self.layout.size(block))
            self.where[block] = here
            self.scratch.tenants(here).add(block)
            if here.buffer == RECV and self.layout.wanted.get(block) != here:
                self.displaced.add(block)
            start += here.size

    def remove(self, block: Block) -> None:
        """Record that the value of the block is not needed any more."""
        if block in self.where:
            self.scratch.tenants(self.where.pop(block)).discard(block)
            self.displaced.discard(block)

    def together(self, blocks: Sequence[Block], where: dict[Block, Region]) -> Region | None:
        """Return the region in which these blocks are contiguous and in order, or None."""
        regions = [where[block] for block in blocks if block in where]
        if len(regions) < len(blocks):
            return None
        regions = [region for region in regions if region.size] or [EMPTY]
        buffer, start, _ = regions[0]
        end = start
        for region in regions:
            if (region.buffer, region.start) != (buffer, end):
                return None
            end += region.size
        return Region(buffer, start, end - start)

    def is_free(self, region: Region, but: Sequence[Block]) -> bool:
        """Return whether no message of this round uses the region, and no other block is stored there."""
        return not any(region.overlaps(other) for other in self.busy) and not self.is_taken(region, but)

    def is_taken(self, region: Region, but: Sequence[Block]) -> bool:
        """Return whether another block, which is wanted elsewhere, is stored there."""
        return any(region.overlaps(self.where[block]) for block in self.displaced if block not in but)

    def pack(self, blocks: Sequence[Block], region: Region) -> None:
        """Make these blocks contiguous in the region; copy those that are not there yet."""
        start = region.start
        for block in blocks:
            to = Region(region.buffer, start, self.layout.size(block))
            if to.size and self.where[block] != to:
                self.steps.append(CopyBytes(self.where[block], to))
            start += to.size

    def source_of(self, blocks: Sequence[Block]) -> Region:
        """Return the region from which these blocks are sent; pack them if they are not contiguous."""
        region = self.together(blocks, self.where)
        if region is None:
            region = self.assembly(self.now, blocks)
            self.pack(blocks, region)
        self.busy.append(region)
        return region

    def assembly(self, round_: int, blocks: Sequence[Block]) -> Region:
        """Return the scratch in which the message with these blocks is packed, which is sent in round `round_`."""
        key = (round_, tuple(blocks))
        if key not in self.assemblies:
            self.assemblies[key] = self.scratch.allocate(self.total(blocks), [("until", round_)])
        return self.assemblies[key]

    def destination(self, blocks: Sequence[Block]) -> Region:
        """Return the region into which a message is received, and assign its blocks to it."""
        region = self.together(blocks, self.layout.wanted)
        if region is None or not self.is_free(region, blocks):
            region = self.part_of_assembly(blocks) or self.scratch.allocate(self.total(blocks), blocks)
        self.assign(blocks, region)
        self.busy.append(region)
        return region

    def part_of_assembly(self, blocks: Sequence[Block]) -> Region | None:
        """Return the region of these blocks in a larger message that sends them later, or None."""
        for now, larger in self.ahead.sent_in.get(blocks[0], ()):
            first = list(larger).index(blocks[0])
            inside = list(larger[first : first + len(blocks)]) == list(blocks)
            if now > self.now and len(larger) > len(blocks) and inside:
                region = self.assembly(now, larger)
                part = Region(region.buffer, region.start + self.total(larger[:first]), self.total(blocks))
                return part if self.is_free(part, blocks) else None
        return None

    def operands(self, blocks: Sequence[Block]) -> tuple[Region, Region]:
        """Return the region of blocks that are combined with others, and the region for the result.

        The region for the result is, by preference:

        1. the region where the blocks are wanted, if it is elsewhere and free;
        2. the region of the blocks itself, if no other block is stored there.  Messages of this round that use it must
           use all of it, so that they are cut into the same pieces;
        3. scratch.
        """
        held = self.together(blocks, self.where)
        if held is None:
            held = self.scratch.allocate(self.total(blocks), blocks)
            self.pack(blocks, held)
            self.assign(blocks, held)
        home = self.together(blocks, self.layout.wanted)
        alone = held.buffer == SCRATCH and self.scratch.tenants(held) <= set(blocks)
        in_place = alone or (held == home and not self.is_taken(held, blocks))
        if home is not None and not home.overlaps(held) and self.is_free(home, blocks):
            return held, home
        if in_place and all(other == held for other in self.busy if other.overlaps(held)):
            return held, held
        return held, self.scratch.allocate(held.size, blocks)

    def slots(self, pieces: list[Region], window: int) -> list[Region]:
        """Allocate scratch for this round: each piece gets a slot of its size, and `window` slots are used in turn."""
        largest = max(piece.size for piece in pieces)
        window = min(window, len(pieces))
        slots = self.scratch.allocate(window * largest, [("until", self.now)])
        self.busy.append(slots)
        return [Region(slots.buffer, slots.start + i % window * largest, piece.size) for i, piece in enumerate(pieces)]

    def unpack(self, blocks: Sequence[Block]) -> None:
        """Copy blocks that were received with others to their wanted regions, to free the scratch early."""
        for block in blocks:
            home = self.layout.wanted.get(block)
            if home is not None and self.is_free(home, [block]):
                self.bring_home([block])

    def bring_home(self, blocks: Iterable[Block]) -> None:
        """Copy blocks to their wanted regions, unless they are there already."""
        wanted = self.layout.wanted
        pending = [block for block in blocks if self.where[block] != wanted[block] and wanted[block].size]
        in_the_way = [block for block in pending if self.where[block].buffer == RECV]
        while pending:
            stuck = []
            for block in pending:
                if any(wanted[block].overlaps(self.where[other]) for other in in_the_way if other != block):
                    stuck.append(block)
                    continue
                self.steps.append(CopyBytes(self.where[block], wanted[block]))
                self.assign([block], wanted[block])
                if block in in_the_way:
                    in_the_way.remove(block)
            if len(stuck) == len(pending):  # the blocks are in the regions of each other: move one to scratch
                block = next(block for block in stuck if block in in_the_way)
                aside = self.scratch.allocate(wanted[block].size, [block])
                self.pack([block], aside)
                self.assign([block], aside)
                in_the_way.remove(block)
            pending = stuck
