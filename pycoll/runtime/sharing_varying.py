"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..compiler.blocks import Extents
from ..compiler.shared import OUTPUT
from .registered import AREA
from .sharing import Meeting, Sharing


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the position of the buffer that others access, the offsets of the blocks in
    it, and the lengths of the blocks that the rank sends to each rank and receives from each rank.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    least: int  # the bytes of all blocks from which on registered buffers are used

    def __post_init__(self) -> None:
        starts = [start for start, _ in (self.sends, self.recvs)[self.which]]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        self._row = np.array([-1, *starts, *lengths], np.int64)
        self.width = self._row.size

    def enter(self, meeting: Meeting, send: int, recv: int) -> None:
        """Write the places of the blocks of this rank to its row of the table."""
        which = self.which if send else OUTPUT  # the input of a rank that works in place is in the receive buffer
        meeting.mine[:] = self._row.data
        meeting.mine[0] = self.channel.registered.code((send, recv)[which], self.sizes[which])

    def peers(self, meeting: Meeting) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if a buffer that others access is not registered, if the blocks are short, or if the lengths of a
        sender and its receiver differ.
        """
        codes, (starts, sends, recvs) = meeting.table[:, 0], np.split(meeting.table[:, 1:], 3, axis=1)
        lengths = recvs if self.which == OUTPUT else sends
        by_others = lengths.sum(axis=1) > lengths.diagonal()
        if (sends != recvs.T).any() or sends.sum() < self.least or (codes[by_others] < 0).any():
            return None
        me, shifts = self.channel.comm.rank, self.channel.registered.shifts
        found = [0] * (2 * self.channel.size)
        for rank in np.flatnonzero(lengths[:, me]).tolist():
            if rank != me:
                code = int(codes[rank])
                found[2 * rank + self.which] = code + int(starts[rank, me]) + shifts[code >> AREA][rank]
        return found
