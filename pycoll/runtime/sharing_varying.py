"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments.memory_kinds import HOST
from ..compiler.blocks import Extents
from ..compiler.program import OUTPUT
from .meeting import Meeting, Rows
from .registered import AREA
from .sharing import Sharing

_Numbers = tuple[int, ...]  # of a rank: the total length, and of each block the offset, and the lengths to and from it
_Blocks = list[tuple[int, int]]  # each with the rank to which it belongs, and its offset


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the position of the buffer that others access, the total length of the
    blocks that it sends, the offsets of the blocks in the buffer, and the lengths of the blocks that it sends to each
    rank and receives from each rank.  The first two numbers are enough to see that a call uses messages.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    least: int  # the least total length, in bytes, for which registered buffers are used

    def __post_init__(self) -> None:
        rank, blocks = self.channel.comm.rank, (self.sends, self.recvs)[self.which]
        starts = [start for start, _ in blocks]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        total = sum(nbytes for _, nbytes in self.sends)
        self._numbers = total, *starts, *lengths
        self._accessed = any(nbytes for peer, (_, nbytes) in enumerate(blocks) if peer != rank)
        self.width = 1 + len(self._numbers)
        self._last: tuple[list[_Numbers], _Blocks | None] = [], None  # those of a call, and what they mean

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The position of the buffer of this rank, -1 if others cannot access it, and the places of its blocks."""
        if self.like.memory is not HOST:  # the CPU cannot copy from or to the buffers of this rank
            return -1, *self._numbers
        if not self._accessed:
            return 0, *self._numbers
        which = self.which if send else OUTPUT  # the input of a rank that works in place is in the receive buffer
        return self.channel.registered.code((send, recv)[which], self.sizes[which]), *self._numbers

    def refuses(self, meeting: Meeting) -> bool:
        """Whether a buffer that others access is not registered or in GPU memory, or the blocks are short."""
        total = 0
        for code, nbytes in meeting.heads():
            if code < 0:
                return True
            total += nbytes
        return total < self.least

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if the lengths of a sender and its receiver differ.
        """
        codes, numbers = [row[0] for row in rows], [row[1:] for row in rows]
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
        starts, sends, recvs = np.split(table[:, 1:], 3, axis=1)
        if (sends != recvs.T).any():
            return None
        lengths = recvs.copy() if self.which == OUTPUT else sends.copy()
        np.fill_diagonal(lengths, 0)
        me = self.channel.comm.rank
        return [(rank, int(starts[rank, me])) for rank in np.flatnonzero(lengths[:, me]).tolist()]
