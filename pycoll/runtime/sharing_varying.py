"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments.memory_kinds import HOST
from ..compiler.blocks import Extents
from ..compiler.program import OUTPUT
from .meeting import Rows
from .registered import AREA
from .sharing import ELSEWHERE, Accessed, Sharing

_Places = tuple[int, ...]  # of the blocks of a rank: offsets, and lengths to and from each rank
_Found = tuple[int, Accessed] | None  # the total length of the blocks, and the buffers that ranks access


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the position of the buffer that others access, the offsets of the blocks in
    it, and the lengths of the blocks that the rank sends to each rank and receives from each rank.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    least: tuple[int, int]  # the least total lengths, in bytes, for which registered buffers and GPU memory are used

    def __post_init__(self) -> None:
        me = self.channel.comm.rank
        starts = [start for start, _ in (self.sends, self.recvs)[self.which]]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        self._places = *starts, *lengths
        self.width = 1 + len(self._places)
        for_others = [nbytes for rank, (_, nbytes) in enumerate((self.sends, self.recvs)[self.which]) if rank != me]
        self.exported = {self.which} if any(for_others) else set()
        self._last: tuple[list[_Places], _Found] = [], None  # those of a call, and what they mean

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The position of the buffer of this rank, and the places of its blocks."""
        if self.like.memory is not HOST:  # the CPU cannot copy from or to the buffers of this rank
            return ELSEWHERE, *self._places
        return self.channel.registered.code(*self.buffer(self.which, send, recv)), *self._places

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if a buffer that others access is not registered, if a buffer is in GPU memory, if the blocks are
        short, or if the lengths of a sender and its receiver differ.
        """
        codes, accessed = [row[0] for row in rows], self._accessed(rows, self.least[0])
        if accessed is None or ELSEWHERE in codes or any(codes[rank] < 0 for rank, _, _ in accessed):
            return None
        peers, shifts = [0] * (2 * self.channel.size), self.channel.registered.shifts
        for rank, which, start in accessed:
            peers[2 * rank + which] = codes[rank] + start + shifts[codes[rank] >> AREA][rank]
        return peers

    def accessed(self, rows: Rows) -> Accessed | None:
        """The buffers that other ranks access; None if the blocks are short, or if lengths differ."""
        return self._accessed(rows, self.least[1])

    def _accessed(self, rows: Rows, least: int) -> Accessed | None:
        places = [row[1 : self.width] for row in rows]
        last = self._last  # calls in a loop often differ in the positions of buffers only
        if places != last[0]:
            last = self._last = places, self._read(np.array(places))
        return last[1][1] if last[1] is not None and last[1][0] >= least else None

    def _read(self, table: np.ndarray) -> _Found:
        """What a table of places means; the part of a buffer that this rank accesses is its own block."""
        starts, sends, recvs = np.split(table, 3, axis=1)
        if (sends != recvs.T).any():
            return None
        lengths = recvs.copy() if self.which == OUTPUT else sends.copy()
        np.fill_diagonal(lengths, 0)
        me = self.channel.comm.rank
        ranks = np.flatnonzero(lengths.any(axis=1)).tolist()
        return int(sends.sum()), [(rank, self.which, int(starts[rank, me])) for rank in ranks]
