"""Where blocks are stored while a schedule runs: in the buffers of the caller, or in scratch.

* A block is where the caller put it until it is first written: nothing is copied at the start, and the
  send buffer is never written.  The first reduction is out of place (``out = held + received``).
* A block that is wanted goes to its place in the receive buffer, as soon as nothing else lies there; any
  other gets scratch, reused once dead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ..schedule.moves import Block, Combine, Copy, Recv, Reduce, Round, Send
from .program import EMPTY, RECV, SCRATCH, CopyBytes, Layout, Region

ALIGNMENT = 64


class _Scratch:
    """Scratch memory by first fit; an allocation lives as long as it has tenants."""

    def __init__(self) -> None:
        self.top = 0
        self._ends: dict[int, int] = {}
        self._tenants: dict[int, set[Hashable]] = {}

    def allocate(self, size: int, tenants: Iterable[Hashable]) -> Region:
        length = max(size + -size % ALIGNMENT, ALIGNMENT)
        start = 0
        for taken, end in sorted(self._ends.items()):
            if start + length <= taken:
                break
            start = end
        self._ends[start], self._tenants[start] = start + length, set(tenants)
        self.top = max(self.top, start + length)
        return Region(SCRATCH, start, size)

    def tenants(self, region: Region) -> set[Hashable]:
        """The tenants of the allocation that this region is part of; none in the other buffers."""
        if region.buffer == SCRATCH and region.size:
            for start, end in self._ends.items():
                if start <= region.start < end:
                    return self._tenants[start]
        return set()

    def evict(self, tenant: Hashable) -> None:
        for tenants in self._tenants.values():
            tenants.discard(tenant)

    def sweep(self) -> None:
        """Free allocations that have no tenants left."""
        for start in [start for start, tenants in self._tenants.items() if not tenants]:
            del self._ends[start], self._tenants[start]


class _Survey:
    """A look ahead: when each block is read last, which messages send it, which blocks are ever written."""

    def __init__(self, rounds: list[Round]) -> None:
        self.last_read: dict[Block, int] = {}
        self.leaves: dict[Block, list[tuple[int, Sequence[Block]]]] = {}
        self.written: set[Block] = set()
        for now, moves in enumerate(rounds):
            for move in moves:
                match move:
                    case Send(_, blocks):
                        self.last_read.update(dict.fromkeys(blocks, now))
                        for block in blocks:
                            self.leaves.setdefault(block, []).append((now, blocks))
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
    """The place of every block that a rank holds, round by round; what must be copied is put into `steps`."""

    def __init__(self, rounds: list[Round], layout: Layout, steps: list[Any]) -> None:
        self.layout, self.steps = layout, steps
        self.ahead = _Survey(rounds)
        self.scratch = _Scratch()
        self.now = 0
        self.busy: list[Region] = []  # what the messages of this round read or write
        self.where: dict[Block, Region] = {}
        self.displaced: set[Block] = set()  # values in the receive buffer, elsewhere than where they are wanted
        self.assemblies: dict[tuple[int, tuple[Block, ...]], Region] = {}
        for block, region in layout.held.items():
            self.place([block], region)

    def end_round(self) -> None:
        """Forget what is read for the last time in this round, and give its scratch back."""
        self.busy = []
        for block in self.ahead.dies_after.get(self.now, ()):
            if block not in self.layout.wanted:
                self.remove(block)
        self.scratch.evict(("until", self.now))
        self.scratch.sweep()
        self.now += 1

    def unchanging(self) -> list[Block]:
        """Blocks that come as they stay, and whose place is free from the start."""
        return [
            block
            for block, home in self.layout.wanted.items()
            if block in self.where and block not in self.ahead.written and self.is_free(home, [block])
        ]

    def total(self, blocks: Sequence[Block]) -> int:
        """Bytes of these blocks together."""
        return sum(self.layout.size(block) for block in blocks)

    def place(self, blocks: Sequence[Block], region: Region) -> None:
        """From now on these blocks are contiguous in this region."""
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
        """The value of the block is not needed any more, or is stored elsewhere from now on."""
        if block in self.where:
            self.scratch.tenants(self.where.pop(block)).discard(block)
            self.displaced.discard(block)

    def together(self, blocks: Sequence[Block], places: dict[Block, Region]) -> Region | None:
        """The one region in which these blocks lie side by side, in order, if there is one."""
        regions = [places[block] for block in blocks if block in places]
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
        """Whether no message of this round uses the region, and no other block's value lies there."""
        return not any(region.overlaps(other) for other in self.busy) and not self.is_taken(region, but)

    def is_taken(self, region: Region, but: Sequence[Block]) -> bool:
        """Whether another block's value lies there that is wanted elsewhere."""
        return any(region.overlaps(self.where[block]) for block in self.displaced if block not in but)

    def pack(self, blocks: Sequence[Block], region: Region) -> None:
        """Copy into the region, side by side, what does not lie there yet."""
        start = region.start
        for block in blocks:
            to = Region(region.buffer, start, self.layout.size(block))
            if to.size and self.where[block] != to:
                self.steps.append(CopyBytes(self.where[block], to))
            start += to.size

    def source_of(self, blocks: Sequence[Block]) -> Region:
        """Where a message with these blocks is read from: as they lie, or packed."""
        region = self.together(blocks, self.where)
        if region is None:
            region = self.assembly(self.now, blocks)
            self.pack(blocks, region)
        self.busy.append(region)
        return region

    def assembly(self, round_: int, blocks: Sequence[Block]) -> Region:
        """The scratch in which the message that leaves with these blocks in that round is put together."""
        key = (round_, tuple(blocks))
        if key not in self.assemblies:
            self.assemblies[key] = self.scratch.allocate(self.total(blocks), [("until", round_)])
        return self.assemblies[key]

    def destination(self, blocks: Sequence[Block]) -> Region:
        """Where a message is received; from now on its blocks lie there."""
        region = self.together(blocks, self.layout.wanted)
        if region is None or not self.is_free(region, blocks):
            region = self.part_of_assembly(blocks) or self.scratch.allocate(self.total(blocks), blocks)
        self.place(blocks, region)
        self.busy.append(region)
        return region

    def part_of_assembly(self, blocks: Sequence[Block]) -> Region | None:
        """The place of these blocks in a larger message that they leave in later, if there is one."""
        for now, larger in self.ahead.leaves.get(blocks[0], ()):
            first = list(larger).index(blocks[0])
            inside = list(larger[first : first + len(blocks)]) == list(blocks)
            if now > self.now and len(larger) > len(blocks) and inside:
                region = self.assembly(now, larger)
                part = Region(region.buffer, region.start + self.total(larger[:first]), self.total(blocks))
                return part if self.is_free(part, blocks) else None
        return None

    def operands(self, blocks: Sequence[Block]) -> tuple[Region, Region]:
        """Where blocks lie that are to be combined with others, and where the result goes.

        That is the place where they are wanted, if it is elsewhere and free; else where they lie, if nothing
        else lies there and the round's messages that use it use all of it, so that they are cut into the
        same pieces; else scratch.
        """
        held = self.together(blocks, self.where)
        if held is None:
            held = self.scratch.allocate(self.total(blocks), blocks)
            self.pack(blocks, held)
            self.place(blocks, held)
        home = self.together(blocks, self.layout.wanted)
        alone = held.buffer == SCRATCH and self.scratch.tenants(held) <= set(blocks)
        in_place = alone or (held == home and not self.is_taken(held, blocks))
        if home is not None and not home.overlaps(held) and self.is_free(home, blocks):
            return held, home
        if in_place and all(other == held for other in self.busy if other.overlaps(held)):
            return held, held
        return held, self.scratch.allocate(held.size, blocks)

    def slots(self, pieces: list[Region], window: int) -> list[Region]:
        """Scratch for this round alone: for each piece a slot as large, where `window` slots take turns."""
        largest = max(piece.size for piece in pieces)
        window = min(window, len(pieces))
        slots = self.scratch.allocate(window * largest, [("until", self.now)])
        self.busy.append(slots)
        return [Region(slots.buffer, slots.start + i % window * largest, piece.size) for i, piece in enumerate(pieces)]

    def unpack(self, blocks: Sequence[Block]) -> None:
        """Bring home what came among others, so that the scratch in which they came is soon free again."""
        for block in blocks:
            home = self.layout.wanted.get(block)
            if home is not None and self.is_free(home, [block]):
                self.bring_home([block])

    def bring_home(self, blocks: Iterable[Block]) -> None:
        """Copy blocks to where they are wanted, if they are not there."""
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
                self.place([block], wanted[block])
                if block in in_the_way:
                    in_the_way.remove(block)
            if len(stuck) == len(pending):  # they lie in each other's places: set one aside
                block = next(block for block in stuck if block in in_the_way)
                aside = self.scratch.allocate(wanted[block].size, [block])
                self.pack([block], aside)
                self.place([block], aside)
                in_the_way.remove(block)
            pending = stuck
