"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..arguments.memory_kinds import HOST
from ..compiler.blocks import Extents
from ..compiler.program import OUTPUT
from .meeting import Meeting, Rows
from .registered import AREA
from .sharing import Sharing

_Numbers = tuple[int, ...]  # of the blocks of a rank: offsets, lengths to and from each rank, and their total
_Blocks = list[tuple[int, int]]  # each with the rank to which it belongs, and its offset


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the offsets of the blocks in the buffer that others access, the lengths of
    the blocks that the rank sends to each rank and receives from each rank, their total, and the position of the
    buffer.  If the last two numbers of a rank show that the call uses messages, it writes no others.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    rooted: bool
    least: int  # the least total length, in bytes, for which registered buffers are used

    def __post_init__(self) -> None:
        rank, blocks = self.channel.comm.rank, (self.sends, self.recvs)[self.which]
        starts = [start for start, _ in blocks]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        self._total = sum(nbytes for _, nbytes in self.sends)
        self._numbers = *starts, *lengths, self._total
        self.width = len(self._numbers) + 1
        self._last: tuple[list[_Numbers], _Blocks | None] = [], None  # those of a call, and what they mean
        accessed = any(nbytes for peer, (_, nbytes) in enumerate(blocks) if peer != rank)
        self._usual = None if accessed else (*self._numbers, 0)  # the row, if it does not depend on addresses
        alone = accessed and self.rooted  # this is the root, which knows all lengths
        if self.like.memory is not HOST or (alone and sum(nbytes for _, nbytes in blocks) < self.least):
            self._usual = self._total, -1  # the CPU cannot copy from or to the buffers, or the blocks are short

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The places of the blocks of this rank, and the position of its buffer, -1 if others cannot access it."""
        if self._usual:
            return self._usual
        which = self.which if send else OUTPUT  # the input of a rank that works in place is in the receive buffer
        code = self.channel.registered.code((send, recv)[which], self.sizes[which])
        return (*self._numbers, code) if code >= 0 else (self._total, -1)

    def reader(self, meeting: Meeting) -> Callable[[], Rows | None]:
        """A function that returns the rows, or None.

        It is None if a buffer that others access is not registered or in GPU memory, or if the blocks are short.
        """
        return partial(self._rows, meeting)

    def _rows(self, meeting: Meeting) -> Rows | None:
        total = 0
        for nbytes, code in meeting.ends():
            if code < 0:
                return None
            total += nbytes
        return meeting.rows() if total >= self.least else None

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if the lengths of a sender and its receiver differ.
        """
        codes, numbers = [row[-1] for row in rows], [row[:-1] for row in rows]
        last = self._last  # calls in a loop often differ in the positions of buffers only
        if numbers != last[0]:
            last = self._last = numbers, self._read(np.array(numbers))
        blocks = last[1]
        if blocks is None:
            return None
        peers, shifts = [0] * (2 * self.channel.size), self.channel.registered.shifts
        for rank, start in blocks:
            peers[2 * rank + self.which] = codes[rank] + start + shifts[codes[rank] >> AREA][rank]
        return peers

    def _read(self, table: np.ndarray) -> _Blocks | None:
        """The ranks and the offsets of the blocks that this rank accesses."""
        starts, sends, recvs = np.split(table[:, :-1], 3, axis=1)
        if (sends != recvs.T).any():
            return None
        lengths = recvs.copy() if self.which == OUTPUT else sends.copy()
        np.fill_diagonal(lengths, 0)
        me = self.channel.comm.rank
        return [(rank, int(starts[rank, me])) for rank in np.flatnonzero(lengths[:, me]).tolist()]
