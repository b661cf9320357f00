"""Lowers schedules to programs: cuts messages into segments and decides the order of steps.

It knows neither MPI nor arrays.  `pycoll.compiler.storage` decides where blocks are stored.

A message longer than a segment is cut.  So a received segment is combined while it is in cache.  Meanwhile the next
receive is already posted, and a window of segments of each message is in flight.  A message that is combined out of
place is received directly into the region of the result.

The windows cannot deadlock.  Partners run matching rounds, which `pycoll.schedule.proof` shows.  Each message of a
round has its own window.  In turn i, every rank waits only for the i-th segment of each of its messages.  Take a rank
whose turn i is the smallest of all ranks in matching rounds.  Its partners have completed turn i-1, so they have
started segment i too, and its waits end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..schedule.moves import AFTER, Combine, Copy, Recv, Reduce, Round, Send, check_round
from .program import EMPTY, Apply, CopyBytes, Layout, Message, Program, Region, Start, Step, Wait
from .storage import Placement

# Bytes of each message in flight, but at least two segments: a rank that computes looks at its messages now and then,
# and meanwhile the link should not become idle.
IN_FLIGHT = 512 << 10


def compile_rounds(rounds: Iterable[Round], layout: Layout, segment: int) -> Program:
    """Compile the rounds of one rank; `segment` is in bytes and a multiple of the item size."""
    return Compiler(list(rounds), layout, segment).program()


@dataclass
class SegmentedMessage:
    """One message of a round, cut into segments."""

    numbers: list[int]  # the indices of the segments among the messages of the program
    results: list[Apply] = field(default_factory=list)  # the combination with each received segment
    after: list[SegmentedMessage] = field(default_factory=list)  # to be sent before a result overwrites them
    staged: bool = False  # received in slots; a segment must be combined before its slot is used again


class Compiler:
    """Compiles the rounds of one rank."""

    def __init__(self, rounds: list[Round], layout: Layout, segment: int) -> None:
        self.rounds, self.segment = rounds, segment
        self.window = max(2, IN_FLIGHT // segment)  # segments of each message in flight
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.blocks = Placement(rounds, layout, self.steps)
        self.early = self.blocks.unchanging()  # copied while the first messages are in flight

    def program(self) -> Program:
        """Compile all rounds."""
        for moves in self.rounds:
            check_round(moves)
            messages = [move for move in moves if isinstance(move, Send | Recv | Reduce)]
            if messages:
                self.exchange(messages)
            for move in moves:
                if isinstance(move, Copy):
                    self.blocks.assign([move.to], self.blocks.where[move.block])
                elif isinstance(move, Combine):
                    self.combine(move)
            self.blocks.end_round()
        self.copy_early()
        layout = self.blocks.layout
        self.blocks.bring_home(layout.wanted)
        self.steps += [CopyBytes(layout.wanted[block], region) for block, region in layout.again if region.size]
        return Program(self.steps, self.messages, self.blocks.scratch.top)

    def meanwhile(self) -> None:
        """Compile local work while the first messages are in flight."""
        self.copy_early()

    def copy_early(self) -> None:
        """Copy blocks that never change to their wanted regions."""
        self.blocks.bring_home(self.early)
        self.early = []

    def combine(self, move: Combine) -> None:
        """Compile a local combination of two blocks."""
        held, out = self.blocks.operands([move.into])
        if out.size:
            self.steps.append(applied(held, self.blocks.where[move.block], out, move.order))
        self.blocks.assign([move.into], out)

    def exchange(self, moves: list[Send | Recv | Reduce]) -> None:
        """Compile a round with messages.  Both sides omit empty messages, except those of a barrier."""
        travelling = [move for move in moves if not move.blocks or self.blocks.total(move.blocks)]
        outgoing = [(move.to, self.blocks.source_of(move.blocks)) for move in travelling if isinstance(move, Send)]
        sends = [self.transfer(True, to, region) for to, region in outgoing]
        receives = []
        for move in moves:
            if isinstance(move, Recv) and move not in travelling:
                self.blocks.assign(move.blocks, EMPTY)
            elif isinstance(move, Recv):
                receives.append(self.transfer(False, move.source, self.blocks.destination(move.blocks)))
            elif isinstance(move, Reduce) and move in travelling:
                receives.append(self.reduction(move, sends, [region for _, region in outgoing]))
        self.interleave(sends, receives)
        self.blocks.busy = []
        for move in travelling:
            if isinstance(move, Recv):
                self.blocks.unpack(move.blocks)

    def reduction(self, move: Reduce, sends: list[SegmentedMessage], sent: list[Region]) -> SegmentedMessage:
        """Compile a Reduce: receive into the region of the result, or into slots if the result replaces an operand."""
        if not move.blocks:
            return self.transfer(False, move.source, EMPTY)
        held, out = self.blocks.operands(move.blocks)
        results = out.cut(self.segment)
        received = self.blocks.slots(results, self.window) if held == out else results
        self.blocks.assign(move.blocks, out)
        self.blocks.busy.append(out)
        return SegmentedMessage(
            self.post(False, move.source, received),
            [applied(*operands, move.order) for operands in zip(held.cut(self.segment), received, results)],
            # `operands` ensures that a message sent from `out` is all of `out`, and is cut in the same way
            [transfer for transfer, region in zip(sends, sent) if region.overlaps(out)],
            staged=held == out,
        )

    def transfer(self, outgoing: bool, peer: int, region: Region) -> SegmentedMessage:
        """Cut a message into segments."""
        return SegmentedMessage(self.post(outgoing, peer, region.cut(self.segment)))

    def post(self, outgoing: bool, peer: int, pieces: list[Region]) -> list[int]:
        """Add messages to the program, and return their numbers."""
        first = len(self.messages)
        self.messages += [Message(outgoing, peer, piece, self.blocks.now) for piece in pieces]
        return list(range(first, len(self.messages)))

    def interleave(self, sends: list[SegmentedMessage], receives: list[SegmentedMessage]) -> None:
        """Order the messages of a round segment by segment, with a window of segments of each message in flight."""
        everything = [*receives, *sends]
        for turn in range(self.window):
            for transfer in everything:
                self.start(transfer, turn)
        self.meanwhile()
        for turn in range(max((len(transfer.numbers) for transfer in everything), default=0)):
            waited: set[int] = set()
            for transfer in receives:
                self.wait(transfer, turn, waited)
                if not transfer.staged:
                    self.start(transfer, turn + self.window)
                if turn < len(transfer.results):
                    for earlier in transfer.after:
                        self.wait(earlier, turn, waited)
                    self.steps.append(transfer.results[turn])
                if transfer.staged:
                    self.start(transfer, turn + self.window)
            for transfer in sends:
                self.wait(transfer, turn, waited)
                self.start(transfer, turn + self.window)

    def start(self, transfer: SegmentedMessage, turn: int) -> None:
        """Start a segment, if there is one."""
        if turn < len(transfer.numbers):
            self.steps.append(Start(transfer.numbers[turn]))

    def wait(self, transfer: SegmentedMessage, turn: int, waited: set[int]) -> None:
        """Wait for a segment, once."""
        if turn < len(transfer.numbers) and transfer.numbers[turn] not in waited:
            self.steps.append(Wait(transfer.numbers[turn]))
            waited.add(transfer.numbers[turn])


def applied(held: Region, other: Region, out: Region, order: str) -> Apply:
    """Return the step that combines what a rank holds with what it received."""
    return Apply(held, other, out) if order == AFTER else Apply(other, held, out)
