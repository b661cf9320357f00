"""The two synchronizations of a collective on registered buffers, in which the ranks also exchange a row of numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..base import hooks
from ..compiler.blocks import ProgramKey, compiled
from ..compiler.program import BLOCKING, EMPTY, Message, Program, Start, Wait
from ..schedule.registry import find
from .board import Arrival, Board
from .executable import REPEATABLE, Calls, Executable
from .recording import recorder
from .recording.steps import Tracer

if TYPE_CHECKING:
    from .channel import Channel

Rows = tuple[tuple[int, ...], ...]  # of the ranks of this host
_END = Struct("2q")
_ANY = 1 << 30  # longer than any message here


class Meeting(ABC):
    """The two synchronizations, and a table with a row of `width` numbers for each rank of this host."""

    opening: Executable
    closing: Executable

    @property
    def last_calls(self) -> Calls:
        """The calls of the second synchronization."""
        return self.closing.calls

    def __init__(self, width: int) -> None:
        self.epoch, self.width = hooks.epoch, width

    @abstractmethod
    def enter(self, row: tuple[int, ...]) -> None:
        """Set the row of this rank, or its last two numbers; the others get them in the first synchronization."""

    def meet(self) -> bool:
        """Try to run the first synchronization, in less time than `opening`; return whether it is complete."""
        return False

    @abstractmethod
    def rows(self) -> Rows:
        """Return the rows of all ranks, after the first synchronization."""

    @abstractmethod
    def ends(self) -> Iterable[Sequence[int]]:
        """Return the last two numbers of all rows, after the first synchronization."""

    def free(self) -> None:
        """Free the requests."""
        self.opening.free()
        self.closing.free()


class MessageMeeting(Meeting):
    """A meeting by messages."""

    def __init__(self, channel: Channel, width: int, in_flight: bool) -> None:
        here, rank = channel.registered.here, channel.registered.place
        size = len(here)
        super().__init__(width)
        table = self._table = np.zeros((size, width), np.int64)
        self._mine = table[rank]
        rows = CheckedBuffers(None, table, width, table.dtype, True, None)
        nothing = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)
        self.opening, self.closing = (
            channel.bind_anew(
                _among(
                    here, compiled(ProgramKey(find(name, algorithm), rank, size, 0, length, 8, length > 0, 1, _ANY))
                ),
                *(buffers, (0, address(buffers.recv)), None, in_flight),
            )
            for name, algorithm, length, buffers in [
                ("allgather", "tree", width, rows),
                ("barrier", "dissemination", 0, nothing),
            ]
        )
        self.opening.leads = True

    def enter(self, row: tuple[int, ...]) -> None:
        """Set the row of this rank, or its last two numbers; the others get them in the first synchronization."""
        self._mine[-len(row) :] = row

    def rows(self) -> Rows:
        """Return the rows of all ranks, after the first synchronization."""
        return tuple(map(tuple, self._table.tolist()))

    def ends(self) -> Iterable[Sequence[int]]:
        """Return the last two numbers of all rows, after the first synchronization."""
        ends: list[list[int]] = self._table[:, -2:].tolist()
        return ends


def _among(ranks: list[int], program: Program) -> Program:
    """The program with these ranks as its peers."""
    if ranks == list(range(len(ranks))):
        return program
    return replace(program, messages=[message._replace(peer=ranks[message.peer]) for message in program.messages])


class BoardMeeting(Meeting):
    """A meeting of blocking collectives on the board of a host."""

    def __init__(self, channel: Channel, width: int, board: Board) -> None:
        super().__init__(width)
        self._board, self._row = board, (0,) * width
        # by the length of the row; in this order: the number of the collective is last
        self._packs = {length: Struct(f"{length + 1}q").pack_into for length in (2, width)}
        self._unpack = Struct(f"{width}q").unpack_from
        self._starts = tuple(8 * (at - width) for at in board.starts)
        self.opening = self._synchronization(channel, "allgather", self.begin, board.starts)
        self.closing = self._synchronization(channel, "barrier", board.finish, (board.end, board.end))
        self._others = [row for place, row in enumerate(board.rows) if place != channel.registered.place]

    def enter(self, row: tuple[int, ...]) -> None:
        """Set the row of this rank, or its last two numbers; the others get them in the first synchronization."""
        self._row, self._board.number = row, self._board.posted + 1

    def meet(self) -> bool:
        """Try to run the first synchronization; return whether all ranks have begun after a few checks."""
        self.begin()
        board = self._board
        number = board.number
        at = board.starts[number & 1]
        for row in self._others:  # noqa: SIM110 - a generator would take longer
            if row[at] != number and not _written(row, at, number, board.spins):
                return False
        return True

    def leave(self) -> None:
        """Run the second synchronization."""
        board = self._board
        number, at = board.number, board.end
        board.mine[at] = number
        for row in self._others:
            if row[at] != number and not _written(row, at, number, board.spins):
                for wait in self.closing.calls[len(self._others) :]:
                    wait()

    @property
    def last_calls(self) -> Calls:
        """The calls of the second synchronization: a single one."""
        return [self.leave]

    def begin(self) -> None:
        """Write the row of this rank, once: writing clears it first, and others may be reading it."""
        board = self._board
        odd = board.number & 1
        if board.mine[board.starts[odd]] != board.number:
            length = len(self._row)
            self._packs[length](board.mine, 8 * (board.starts[odd] - length), *self._row, board.number)
        board.posted = board.number

    def rows(self) -> Rows:
        """Return the rows of all ranks, after the first synchronization."""
        board = self._board
        return tuple(map(self._unpack, board.rows, repeat(self._starts[board.number & 1])))

    def ends(self) -> Iterable[Sequence[int]]:
        """Return the last two numbers of all rows, after the first synchronization."""
        board = self._board
        return map(_END.unpack_from, board.rows, repeat(8 * (board.starts[board.number & 1] - 2)))

    def _synchronization(
        self, channel: Channel, name: str, write: Callable[[], None], at: tuple[int, int]
    ) -> Executable:
        """An executable that writes and waits for the others; in traces, it sends empty messages."""
        board, here, place = self._board, channel.registered.here, channel.registered.place
        messages: list[Message] = []
        requests: list[Arrival] = []
        for other, peer in enumerate(here):
            if other != place:
                messages += [Message(True, peer, EMPTY, 0), Message(False, peer, EMPTY, 0)]
                requests += [Arrival(board, place, here[place], at), Arrival(board, other, peer, at)]
        starts, waits = range(0, len(messages), 2), range(1, len(messages), 2)
        program = Program([*map(Start, starts), *map(Wait, waits)], messages, 0, f"{name}.board")
        idle = [int] * (len(starts) - 1)  # all others see what is written once, after all messages have started
        executable = Executable(program, [*idle, write, *[one.Wait for one in requests[1::2]]], requests, None)
        if recorder.current:
            executable.record(Tracer(recorder.current, channel.comm, program, 0, [BLOCKING]))
        return executable


def _written(row: memoryview, at: int, number: int, spins: int) -> bool:
    """Whether a rank has written this number after a few checks."""
    for _ in range(spins):  # noqa: SIM110
        if row[at] == number:
            return True
    return False


REPEATABLE.update(one.__code__ for one in (BoardMeeting.begin, BoardMeeting.leave))
