"""From operations on chunks to rounds of moves on blocks.

A cell has an address, and a block has a name, which sender and receiver share.  `Rounds` therefore keeps the name of
each cell.  A received block keeps the name that it has on the sender, and a copy is only a second cell with this name,
until one of the two changes.  If a name would stand for two values, a `Copy` gives one of them a new name.  Each move
is in the first round in which it can be.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..document import assembled
from ..moves import AFTER, BEFORE, Block, Combine, Copy, Move, Recv, Reduce, Round, Send
from .cells import Buffers, Cell
from .operations import Execution, Instruction, NoAlgorithm, Queues, add_ends, check_races, in_order, steps


@dataclass
class RoundMessage:
    """A message of a round; with an order, the receiver combines it."""

    source: int
    to: int
    order: str | None
    blocks: list[Block]


@dataclass
class Phase:
    """A round of all ranks: first local moves, then messages."""

    local: dict[int, list[Move]] = field(default_factory=lambda: defaultdict(list))
    messages: list[RoundMessage] = field(default_factory=list)


def document_from(name: str, buffers: Buffers, operations: list[Instruction], queues: Queues = ()) -> dict[str, Any]:
    """Return the document of operations; raise ValueError if they are wrong, or `NoAlgorithm` if they cut blocks."""
    add_ends(operations, buffers)
    order = in_order(operations, queues)
    check_races(operations, order)
    found = [Rounds(buffers, chunk) for chunk in range(buffers.chunks)]
    for step in steps(operations, order, buffers):
        found[step.values[0].chunk].add(step)
    first, *others = ([*each.finished()] for each in found)
    if any(rounds != first for rounds in others):
        chunks = f"the {buffers.chunks} chunks of a block take different ways"
        raise NoAlgorithm(
            f"each rank gets its result, but {chunks}; pycoll cannot run this, because it moves whole blocks"
        )
    ordered = all(each.in_rank_order for each in found)
    return assembled(buffers.primitive.name, name, buffers.ranks, 0, buffers.parts, ordered, first)


class Rounds:
    """The rounds of all ranks, step by step; for one of the chunks of each block."""

    def __init__(self, buffers: Buffers, chunk: int) -> None:
        self.buffers, self.chunk = buffers, chunk
        self.names: dict[Cell, Block] = {}
        self.cells: dict[tuple[int, Block], set[Cell]] = defaultdict(set)
        self.phases: list[Phase] = []
        self.sent: dict[tuple[int, Block], int] = {}  # the last phase with a message that reads a block of a rank,
        self.written: dict[tuple[int, Block], int] = {}  # with a message that writes it,
        self.moved: dict[tuple[int, Block], int] = {}  # and with a local move that reads or writes it
        self.in_rank_order = True  # whether all results combine the contributions in the order of the ranks
        self.new = itertools.count(buffers.ranks)
        for rank in range(buffers.ranks):
            for cell, part in buffers.start(rank).items():
                if part.chunk == chunk:
                    self.bind(cell, part.block)

    def add(self, step: Execution) -> None:
        """Add an assignment."""
        rank, (to, of), values = step.rank, step.assignment, list(step.values)
        if not to:
            self.in_rank_order &= values[0].ranks == tuple(sorted(values[0].ranks))
            return
        target, operands = next((cell for cell in to if cell.rank == rank), to[0]), list(of)
        if len(of) > 1:
            target = target if target.rank == rank else self.temporary(rank)
            if of[1] == target or (of[0].rank != rank and of[1].rank == rank):  # operands of a sum can be exchanged
                operands[:2], values[:2] = operands[1::-1], values[1::-1]
            if target in operands[1:]:
                kept = self.temporary(rank)
                self.move(target, kept)
                operands[1:] = [kept if cell == target else cell for cell in operands[1:]]
        self.move(operands[0], target)
        total = values[0]
        for cell, value in zip(operands[1:], values[1:]):
            self.combine(target, cell, AFTER if total.least() < value.least() else BEFORE)
            total = total.plus(value)
        for cell in to:
            if cell != target:
                self.move(target, cell)

    def temporary(self, rank: int) -> Cell:
        """Return a cell that no file has."""
        return Cell(rank, "temporary", next(self.new))

    def bind(self, cell: Cell, name: Block) -> None:
        """Give a cell a name."""
        if cell in self.names:
            self.cells[cell.rank, self.names[cell]].discard(cell)
        self.names[cell] = name
        self.cells[cell.rank, name].add(cell)

    def separate(self, rank: int, name: Block, cell: Cell) -> None:
        """Give all other cells of a rank with this name another one, with a copy of the value."""
        others = self.cells[rank, name] - {cell}
        if others:
            copy = (next(self.new), name[-1] if isinstance(name, tuple) else name)
            self.local(rank, Copy(name, copy))
            for other in others:
                self.bind(other, copy)

    def move(self, source: Cell, to: Cell) -> None:
        """Copy the value of a cell to another cell, which may be on another rank."""
        name = self.names[source]
        if source.rank != to.rank:
            self.separate(to.rank, name, to)
            self.message(source.rank, to.rank, None, name)
        self.bind(to, name)

    def combine(self, into: Cell, other: Cell, order: str) -> None:
        """Combine the value of a cell with that of another cell, which may be on another rank."""
        name = self.names[into]
        if other.rank != into.rank and self.names[other] != name:
            received = self.temporary(into.rank)
            self.move(other, received)
            other = received
        self.separate(into.rank, name, into)
        if other.rank != into.rank:
            self.message(other.rank, into.rank, order, name)
        else:
            self.local(into.rank, Combine(self.names[other], name, order))

    def local(self, rank: int, move: Copy | Combine) -> None:
        """Add a local move to the first phase after all that it needs."""
        source, to = (rank, move[0]), (rank, move[1])
        after = max(self.written.get(source, -1), self.written.get(to, -1), self.sent.get(to, -1)) + 1
        at = max(after, self.moved.get(source, 0), self.moved.get(to, 0))
        self.moved[source] = self.moved[to] = at
        self.phase(at).local[rank].append(move)

    def message(self, source: int, to: int, order: str | None, name: Block) -> None:
        """Add a message to the first phase after all that it needs."""
        here, there = (source, name), (to, name)
        after = max(self.written.get(here, -1), self.written.get(there, -1)) + 1
        at = max(after, self.moved.get(here, 0), self.moved.get(there, 0), self.sent.get(there, 0))
        self.sent[here] = max(at, self.sent.get(here, 0))
        self.written[there] = at
        messages = self.phase(at).messages
        between = [each for each in messages if (each.source, each.to) == (source, to)]
        if between and between[-1].order == order:
            between[-1].blocks.append(name)
        else:
            messages.append(RoundMessage(source, to, order, [name]))

    def phase(self, number: int) -> Phase:
        """Return a phase; the last one may be new."""
        while len(self.phases) <= number:
            self.phases.append(Phase())
        return self.phases[number]

    def finished(self) -> list[list[Round]]:
        """Return the rounds of each rank, after moves that give each block of the result its name."""
        for rank in range(self.buffers.ranks):
            for cell, (block, chunk) in self.buffers.end(rank).items():
                if chunk == self.chunk and self.names[cell] != block:
                    self.separate(rank, block, cell)
                    self.local(rank, Copy(self.names[cell], block))
                    self.bind(cell, block)
        return [self._of(rank) for rank in range(self.buffers.ranks)]

    def _of(self, rank: int) -> list[Round]:
        rounds: list[Round] = []
        for phase in self.phases:
            sends = [Send(each.to, each.blocks) for each in phase.messages if each.source == rank]
            receives = [
                Recv(each.source, each.blocks) if each.order is None else Reduce(each.source, each.blocks, each.order)
                for each in phase.messages
                if each.to == rank
            ]
            rounds += [tuple(phase.local.get(rank, ())), (*sends, *receives)]
        needed = {part.block for part in self.buffers.end(rank).values()}
        return [moves for moves in without_unused(rounds, needed) if moves]


def without_unused(rounds: Sequence[Round], needed: set[Block]) -> list[Round]:
    """Leave out local moves whose result no later move uses, and no one needs."""
    kept: list[Round] = []
    for moves in reversed(rounds):
        left: list[Move] = []
        for move in reversed(moves):
            if isinstance(move, (Copy, Combine)):
                if move[1] not in needed:
                    continue
                needed = (needed - {move[1]}) if isinstance(move, Copy) else needed
                needed = needed | {move[0]}
            left.append(move)
        for move in moves:
            if isinstance(move, Recv):
                needed = needed - {*move.blocks}
        for move in moves:
            if isinstance(move, (Send, Reduce)):
                needed = needed | {*move.blocks}
        kept.append(tuple(reversed(left)))
    return kept[::-1]
