"""The two synchronizations of a collective on registered buffers, in which the ranks also exchange a row of numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..base import hooks
from ..compiler.blocks import ProgramKey, compiled
from ..compiler.program import BLOCKING, Program
from ..schedule.registry import find
from .machine import MachineRun

if TYPE_CHECKING:
    from .channel import Channel

Rows = tuple[tuple[int, ...], ...]  # of the ranks of this host
_ANY = 1 << 30  # longer than any message here


class Meeting:
    """The two synchronizations, and a table with a row of `width` numbers for each rank of this host."""

    def __init__(self, channel: Channel, width: int, tag: int = BLOCKING) -> None:
        here, rank = channel.registered.here, channel.registered.place
        size = len(here)
        self.epoch, self.width = hooks.epoch, width
        table = self._table = np.zeros((size, width), np.int64)
        self._mine = table[rank]
        rows = CheckedBuffers(None, table, width, table.dtype, True, None)
        nothing = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)
        self.opening, self.closing = (
            channel.bind(
                _among(
                    here, compiled(ProgramKey(find(name, algorithm), rank, size, 0, length, 8, length > 0, 1, _ANY))
                ),
                buffers,
                None,
                tag,
            )
            for name, algorithm, length, buffers in [
                ("allgather", "tree", width, rows),
                ("barrier", "dissemination", 0, nothing),
            ]
        )
        self.opening.leads = True
        for one in (self.opening, self.closing):
            if isinstance(one, MachineRun) and channel.mailboxes and channel.mailboxes.near:
                one.sent = []  # in shared memory, they are not counted as messages

    def enter(self, row: tuple[int, ...]) -> None:
        """Set the row of this rank; the others get it in the first synchronization."""
        self._mine[:] = row

    def rows(self) -> Rows:
        """Return the rows of all ranks, after the first synchronization."""
        return tuple(map(tuple, self._table.tolist()))


def _among(ranks: list[int], program: Program) -> Program:
    """The program with these ranks as its peers."""
    if ranks == list(range(len(ranks))):
        return program
    return replace(program, messages=[message._replace(peer=ranks[message.peer]) for message in program.messages])
