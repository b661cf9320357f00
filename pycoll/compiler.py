"""From a schedule to a program: where blocks lie, how messages are cut, in which order things happen.

It knows neither MPI nor arrays.

* A block is where the caller put it until it is first written: nothing is copied at the start, and the
  send buffer is never written.  The first reduction is out of place (``out = held + received``), and then
  the message is received right where the result will be.
* A block that is wanted goes to its place in the receive buffer; any other gets scratch, reused once dead.
* A message longer than a segment is cut, so that what was received is combined while it is in cache, with
  the next receive already posted and a window of segments of each message in flight.

Why the windows cannot deadlock: partners run matching rounds (`pycoll.proof` shows that), each message of a
round has its own window, and in turn i every rank waits for the i-th segment of each of its messages
alone.  Of all ranks in matching rounds take one whose turn i is the smallest: its partners have been
through turn i-1, so they have started segment i too, and its waits end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from .program import RECV, SCRATCH, Apply, Layout, Message, Move, Program, Region, Start, Step, Wait
from .schedule import AFTER, Block, Combine, Copy, Recv, Reduce, Round, Send
from .schedule import Move as AnyMove

ALIGNMENT = 64
WINDOW = 2
EMPTY = Region(SCRATCH, 0, 0)


def compile_rounds(rounds: Iterable[Round], layout: Layout, segment: int, window: int = WINDOW) -> Program:
    """Compile one rank's rounds; `segment` is in bytes and a multiple of the item size."""
    return _Compiler([tuple(moves) for moves in rounds], layout, segment, window).program()


class _Scratch:
    """Scratch memory by first fit; an allocation lives as long as it has tenants."""

    def __init__(self) -> None:
        self.top = 0
        self._ends: dict[int, int] = {}
        self._tenants: dict[int, set[Hashable]] = {}

    def allocate(self, size: int, tenants: Iterable[Hashable]) -> Region:
        room = max(size + -size % ALIGNMENT, ALIGNMENT)
        start = 0
        for taken, end in sorted(self._ends.items()):
            if start + room <= taken:
                break
            start = end
        self._ends[start], self._tenants[start] = start + room, set(tenants)
        self.top = max(self.top, start + room)
        return Region(SCRATCH, start, size)

    def tenants(self, region: Region) -> set[Hashable]:
        """Who lives in the allocation that this region is part of; nobody in the other buffers."""
        if region.buffer == SCRATCH and region.size:
            for start, end in self._ends.items():
                if start <= region.start < end:
                    return self._tenants[start]
        return set()

    def evict(self, tenant: Hashable) -> None:
        for tenants in self._tenants.values():
            tenants.discard(tenant)

    def sweep(self) -> None:
        """Free what has no tenant any more."""
        for start in [start for start, tenants in self._tenants.items() if not tenants]:
            del self._ends[start], self._tenants[start]


@dataclass
class _Incoming:
    """A message to be received into `target`; a combined one makes ``out = held (op) received`` of it."""

    source: int
    target: Region
    held: Region = EMPTY
    out: Region = EMPTY
    order: str = AFTER

    @property
    def combined(self) -> bool:
        return self.out.size > 0

    @property
    def staged(self) -> bool:
        """Whether the message passes through a few slots of a segment each, because `out` is `held`."""
        return self.combined and self.out != self.target


class _Survey:
    """What lies ahead: when each block is read last, in which messages it leaves, what is ever written."""

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


class _Compiler:
    def __init__(self, rounds: list[Round], layout: Layout, segment: int, window: int) -> None:
        self.rounds, self.layout, self.segment, self.window = rounds, layout, segment, window
        self.ahead = _Survey(rounds)
        self.scratch = _Scratch()
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.now = 0
        self.busy: list[Region] = []  # what the messages of this round read or write
        self.where: dict[Block, Region] = {}
        self.squatters: set[Block] = set()  # values in the receive buffer, elsewhere than where they are wanted
        for block, region in layout.held.items():
            self.place([block], region)
        self.assemblies: dict[tuple[int, tuple[Block, ...]], Region] = {}
        # copies of blocks that come as they stay, to be made while the first messages travel
        self.early = [
            block
            for block, home in layout.wanted.items()
            if block in self.where and block not in self.ahead.written and self.is_free(home, [block])
        ]
        self.deaths: dict[int, list[Block]] = {}
        for block, now in self.ahead.last_read.items():
            if block not in layout.wanted:
                self.deaths.setdefault(now, []).append(block)

    def program(self) -> Program:
        for now, moves in enumerate(self.rounds):
            self.now = now
            messages = [move for move in moves if isinstance(move, Send | Recv | Reduce)]
            if messages:
                self.exchange(messages)
            else:
                for move in moves:
                    self.local(move)
            for block in self.deaths.get(now, ()):
                self.remove(block)
            self.scratch.evict(("until", now))
            self.scratch.sweep()
        self.bring_home([block for block in self.layout.wanted if block not in self.early])
        self.copy_early()
        return Program(self.steps, self.messages, self.scratch.top)

    # Where things lie.

    def total(self, blocks: Sequence[Block]) -> int:
        return sum(self.layout.size(block) for block in blocks)

    def place(self, blocks: Sequence[Block], region: Region) -> None:
        """From now on these blocks lie side by side in this region."""
        start = region.start
        for block in blocks:
            self.remove(block)
            here = Region(region.buffer, start, self.layout.size(block))
            self.where[block] = here
            self.scratch.tenants(here).add(block)
            if here.buffer == RECV and self.layout.wanted.get(block) != here:
                self.squatters.add(block)
            start += here.size

    def remove(self, block: Block) -> None:
        """The block's value is needed no more, or lies elsewhere from now on."""
        if block in self.where:
            self.scratch.tenants(self.where.pop(block)).discard(block)
            self.squatters.discard(block)

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
        return not any(region.overlaps(other) for other in self.busy) and not self.is_squatted(region, but)

    def is_squatted(self, region: Region, but: Sequence[Block]) -> bool:
        return any(region.overlaps(self.where[block]) for block in self.squatters if block not in but)

    def pack(self, blocks: Sequence[Block], region: Region) -> None:
        """Copy into the region, side by side, what does not lie there yet."""
        start = region.start
        for block in blocks:
            to = Region(region.buffer, start, self.layout.size(block))
            if to.size and self.where[block] != to:
                self.steps.append(Move(self.where[block], to))
            start += to.size

    def source_of(self, blocks: Sequence[Block]) -> Region:
        """Where a message with these blocks is read from: as they lie, or packed."""
        region = self.together(blocks, self.where)
        if region is None:
            region = self.assembly(self.now, blocks)
            self.pack(blocks, region)
        return region

    def assembly(self, round_: int, blocks: Sequence[Block]) -> Region:
        """The scratch in which the message that leaves with these blocks in that round is put together."""
        key = (round_, tuple(blocks))
        if key not in self.assemblies:
            self.assemblies[key] = self.scratch.allocate(self.total(blocks), [("until", round_)])
        return self.assemblies[key]

    def destination(self, blocks: Sequence[Block]) -> Region:
        """Where a message goes: home, its part of a larger message that it leaves in, or scratch of its own."""
        home = self.together(blocks, self.layout.wanted)
        if home is not None and self.is_free(home, blocks):
            return home
        for now, larger in self.ahead.leaves.get(blocks[0], ()):
            first = list(larger).index(blocks[0])
            if (
                now > self.now
                and len(larger) > len(blocks)
                and list(larger[first : first + len(blocks)]) == list(blocks)
            ):
                region = self.assembly(now, larger)
                return Region(region.buffer, region.start + self.total(larger[:first]), self.total(blocks))
        return self.scratch.allocate(self.total(blocks), blocks)

    def operands(self, blocks: Sequence[Block]) -> tuple[Region, Region]:
        """Where blocks lie that are to be combined with others, and where the result goes."""
        held = self.together(blocks, self.where)
        if held is None:
            held = self.scratch.allocate(self.total(blocks), blocks)
            self.pack(blocks, held)
            self.place(blocks, held)
        home = self.together(blocks, self.layout.wanted)
        alone = held.buffer == SCRATCH and self.scratch.tenants(held) <= set(blocks)
        in_place = alone or (held == home and not self.is_squatted(held, blocks))
        if home is not None and not home.overlaps(held) and self.is_free(home, blocks):
            return held, home
        # in place only if the round's messages that use the region are cut into the same pieces
        if in_place and all(other == held for other in self.busy if other.overlaps(held)):
            return held, held
        return held, self.scratch.allocate(held.size, blocks)

    # What happens.

    def local(self, move: AnyMove) -> None:
        if isinstance(move, Copy):
            self.place([move.to], self.where[move.block])
            return
        assert isinstance(move, Combine)
        held, out = self.operands([move.into])
        other = self.where[move.block]
        if out.size:
            self.steps.append(Apply(held, other, out) if move.order == AFTER else Apply(other, held, out))
        self.place([move.into], out)

    def exchange(self, moves: list[Send | Recv | Reduce]) -> None:
        """One round with messages.  Empty ones are left out on both sides, unless they are a barrier's."""
        self.busy = []
        sends, receives = [], []
        travelling = [move for move in moves if not move.blocks or self.total(move.blocks)]
        for move in travelling:
            if isinstance(move, Send):
                region = self.source_of(move.blocks)
                sends.append((move.to, region))
                self.busy.append(region)
        for move in travelling:
            if not isinstance(move, Send):
                receives.append(self.receive(move))
                self.busy.append(receives[-1].target)
        for move in moves:
            if isinstance(move, Recv) and move not in travelling:
                self.place(move.blocks, EMPTY)
        self.emit(sends, receives)
        self.busy = []
        for move in travelling:
            if isinstance(move, Recv):
                self.unpack(move.blocks)

    def receive(self, move: Recv | Reduce) -> _Incoming:
        source, blocks = move.source, move.blocks
        if not blocks:
            return _Incoming(source, EMPTY)
        if isinstance(move, Recv):
            target = self.destination(blocks)
            self.place(blocks, target)
            return _Incoming(source, target)
        held, out = self.operands(blocks)
        target = out
        if held == out:
            slots = min(self.window, len(out.cut(self.segment)))
            target = self.scratch.allocate(slots * min(self.segment, out.size), [("until", self.now)])
        self.place(blocks, out)
        return _Incoming(source, target, held, out, move.order)

    def emit(self, sends: list[tuple[int, Region]], receives: list[_Incoming]) -> None:
        """All messages of a round, segment by segment, each with a window of segments in flight."""
        leaving = [self.post(True, to, region.cut(self.segment)) for to, region in sends]
        slots = [self.slots(entry) for entry in receives]
        coming = [self.post(False, entry.source, pieces) for entry, pieces in zip(receives, slots)]
        applies = [self.applies(entry, pieces) for entry, pieces in zip(receives, slots)]
        replaced = [  # what is sent from where a result goes is waited for before that result is written
            [lane for (_, region), lane in zip(sends, leaving) if region.overlaps(entry.out)] for entry in receives
        ]
        for turn in range(self.window):
            self.start([*coming, *leaving], turn)
        self.copy_early()
        for turn in range(max(map(len, [*coming, *leaving]), default=0)):
            waited: set[int] = set()
            for entry, lane, results, before in zip(receives, coming, applies, replaced):
                self.wait([lane], turn, waited)
                if not entry.staged:
                    self.start([lane], turn + self.window)
                if turn < len(results):
                    self.wait(before, turn, waited)
                    self.steps.append(results[turn])
                if entry.staged:
                    self.start([lane], turn + self.window)
            self.wait(leaving, turn, waited)
            self.start(leaving, turn + self.window)

    def slots(self, entry: _Incoming) -> list[Region]:
        """Where each segment of a message is received; a staged one's segments take turns in the slots."""
        if not entry.staged:
            return entry.target.cut(self.segment)
        pieces = entry.out.cut(self.segment)
        slots = entry.target.cut(min(self.segment, entry.out.size))
        return [slots[i % len(slots)]._replace(size=piece.size) for i, piece in enumerate(pieces)]

    def applies(self, entry: _Incoming, received: list[Region]) -> list[Apply]:
        """What is done with each segment received."""
        if not entry.combined:
            return []
        held, out = entry.held.cut(self.segment), entry.out.cut(self.segment)
        left, right = (held, received) if entry.order == AFTER else (received, held)
        return [Apply(*operands) for operands in zip(left, right, out)]

    def post(self, outgoing: bool, peer: int, pieces: list[Region]) -> list[int]:
        first = len(self.messages)
        self.messages += [Message(outgoing, peer, piece) for piece in pieces]
        return list(range(first, len(self.messages)))

    def start(self, lanes: Iterable[list[int]], turn: int) -> None:
        self.steps += [Start(lane[turn]) for lane in lanes if turn < len(lane)]

    def wait(self, lanes: Iterable[list[int]], turn: int, waited: set[int]) -> None:
        for lane in lanes:
            if turn < len(lane) and lane[turn] not in waited:
                self.steps.append(Wait(lane[turn]))
                waited.add(lane[turn])

    def copy_early(self) -> None:
        self.bring_home(self.early)
        self.early = []

    def unpack(self, blocks: Sequence[Block]) -> None:
        """Bring home what came among others, so that the scratch in which they came is soon free again."""
        for block in blocks:
            home = self.layout.wanted.get(block)
            if home is not None and self.where[block] != home and self.is_free(home, [block]):
                self.bring_home([block])
                self.place([block], home)

    def bring_home(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            home = self.layout.wanted[block]
            if self.where[block] != home and home.size:
                self.steps.append(Move(self.where[block], home))
