"""From a schedule to a program: how messages are cut, and in which order things happen.

It knows neither MPI nor arrays.

Where blocks lie is `pycoll.placement`'s business.  A message longer than a segment is cut, so that what was
received is combined while it is in cache, with the next receive already posted and a window of segments of
each message in flight.  A message to be combined out of place is received right where the result will be.

Why the windows cannot deadlock: partners run matching rounds (`pycoll.proof` shows that), each message of a
round has its own window, and in turn i every rank waits for the i-th segment of each of its messages
alone.  Of all ranks in matching rounds take one whose turn i is the smallest: its partners have been
through turn i-1, so they have started segment i too, and its waits end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .placement import Placement
from .program import EMPTY, Apply, Layout, Message, Program, Region, Start, Step, Wait
from .schedule import AFTER, Combine, Copy, Recv, Reduce, Round, Send
from .schedule import Move as AnyMove

WINDOW = 2


def compile_rounds(rounds: Iterable[Round], layout: Layout, segment: int, window: int = WINDOW) -> Program:
    """Compile one rank's rounds; `segment` is in bytes and a multiple of the item size."""
    return _Compiler([tuple(moves) for moves in rounds], layout, segment, window).program()


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


class _Compiler:
    def __init__(self, rounds: list[Round], layout: Layout, segment: int, window: int) -> None:
        self.rounds, self.segment, self.window = rounds, segment, window
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.blocks = Placement(rounds, layout, self.steps)
        self.early = self.blocks.unchanging()  # to be copied while the first messages travel

    def program(self) -> Program:
        unchanging = set(self.early)
        for moves in self.rounds:
            messages = [move for move in moves if isinstance(move, Send | Recv | Reduce)]
            if messages:
                self.exchange(messages)
            else:
                for move in moves:
                    self.local(move)
            self.blocks.end_round()
        self.copy_early()
        self.blocks.bring_home(block for block in self.blocks.layout.wanted if block not in unchanging)
        return Program(self.steps, self.messages, self.blocks.scratch.top)

    def copy_early(self) -> None:
        self.blocks.bring_home(self.early)
        self.early = []

    def local(self, move: AnyMove) -> None:
        if isinstance(move, Copy):
            self.blocks.place([move.to], self.blocks.where[move.block])
            return
        assert isinstance(move, Combine)
        held, out = self.blocks.operands([move.into])
        other = self.blocks.where[move.block]
        if out.size:
            self.steps.append(Apply(held, other, out) if move.order == AFTER else Apply(other, held, out))
        self.blocks.place([move.into], out)

    def exchange(self, moves: list[Send | Recv | Reduce]) -> None:
        """One round with messages.  Empty ones are left out on both sides, unless they are a barrier's."""
        sends, receives = [], []
        travelling = [move for move in moves if not move.blocks or self.blocks.total(move.blocks)]
        for move in travelling:
            if isinstance(move, Send):
                sends.append((move.to, self.blocks.source_of(move.blocks)))
        for move in moves:
            if isinstance(move, Recv | Reduce):
                if move in travelling:
                    receives.append(self.receive(move))
                elif isinstance(move, Recv):
                    self.blocks.place(move.blocks, EMPTY)
        self.emit(sends, receives)
        self.blocks.busy = []
        for move in travelling:
            if isinstance(move, Recv):
                self.blocks.unpack(move.blocks)

    def receive(self, move: Recv | Reduce) -> _Incoming:
        if not move.blocks:
            return _Incoming(move.source, EMPTY)
        if isinstance(move, Recv):
            return _Incoming(move.source, self.blocks.destination(move.blocks))
        held, out = self.blocks.operands(move.blocks)
        target = out
        if held == out:
            slots = min(self.window, len(out.cut(self.segment)))
            target = self.blocks.slots(slots * min(self.segment, out.size))
        self.blocks.place(move.blocks, out)
        self.blocks.busy.append(target)
        return _Incoming(move.source, target, held, out, move.order)

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
