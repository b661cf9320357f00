"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments.memory_kinds import HOST
from ..compiler.blocks import Extents
from ..compiler.program import OUTPUT
from .meeting import Rows
from .registered import AREA
from .sharing import Sharing

_Places = tuple[int, ...]  # of the blocks of a rank: offsets, and lengths to and from each rank
_Found = tuple[list[int], list[tuple[int, int]]]


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the position of the buffer that others access, the offsets of the blocks in
    it, and the lengths of the blocks that the rank sends to each rank and receives from each rank.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    least: int  # the least total length, in bytes, for which registered buffers are used

    def __post_init__(self) -> None:
        starts = [start for start, _ in (self.sends, self.recvs)[self.which]]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        self._places = *starts, *lengths
        self.width = 1 + len(self._places)
        self._last: tuple[list[_Places], _Found | None] = [], None  # those of a call, and what they mean

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The position of the buffer of this rank, and the places of its blocks."""
        which = self.which if send else OUTPUT  # the input of a rank that works in place is in the receive buffer
        if self.like.memory is not HOST:  # the CPU cannot copy from or to the buffers of this rank
            return (-1,) * self.width
        return self.channel.registered.code((send, recv)[which], self.sizes[which]), *self._places

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if a buffer that others access is not registered, if a buffer is in GPU memory, if the blocks are
        short, or if the lengths of a sender and its receiver differ.
        """
        codes, places = [row[0] for row in rows], [row[1:] for row in rows]
        last = self._last  # calls in a loop often differ in the positions of buffers only
        if places != last[0]:
            last = self._last = places, self._read(np.array(places))
        found = last[1]
        if found is None or any(codes[rank] < 0 for rank in found[0]):
            return None
        peers, shifts = [0] * (2 * self.channel.size), self.channel.registered.shifts
        for rank, start in found[1]:
            peers[2 * rank + self.which] = codes[rank] + start + shifts[codes[rank] >> AREA][rank]
        return peers

    def _read(self, table: np.ndarray) -> _Found | None:
        """The ranks whose buffers others access, and the ranks and offsets of the blocks that this rank accesses."""
        starts, sends, recvs = np.split(table, 3, axis=1)
        if (sends < 0).any() or (sends != recvs.T).any() or sends.sum() < self.least:
            return None
        lengths = recvs.copy() if self.which == OUTPUT else sends.copy()
        np.fill_diagonal(lengths, 0)
        me = self.channel.comm.rank
        mine = [(rank, int(starts[rank, me])) for rank in np.flatnonzero(lengths[:, me]).tolist()]
        return np.flatnonzero(lengths.any(axis=1)).tolist(), mine
