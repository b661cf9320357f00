"""Collectives on registered buffers with blocks of different lengths: each rank tells the others where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments.memory_kinds import HOST
from ..compiler.blocks import Extents
from ..compiler.program import INPUT, OUTPUT
from .meeting import Rows
from .registered import AREA
from .sharing import Sharing

_Numbers = tuple[int, ...]  # of the blocks of a rank: offsets, lengths to and from each rank, and their total
_Blocks = tuple[int, list[tuple[int, int]]]  # their total length; the ranks that others access, each with its block


@dataclass
class VaryingSharing(Sharing):
    """Calls of one kind, in which ranks know only the places of their own blocks.

    The row of a rank in the table contains the offsets of the blocks in the buffer that others access, the lengths of
    the blocks that the rank sends to each rank and receives from each rank, their total, and the position of the
    buffer.
    """

    sends: Extents  # the places of the blocks for each rank
    recvs: Extents  # and of those from each rank
    which: int  # the buffer that others access: INPUT or OUTPUT
    least: int  # the least total length, in bytes, for which registered buffers are used

    def __post_init__(self) -> None:
        rank, blocks = self.channel.comm.rank, (self.sends, self.recvs)[self.which]
        starts = [start for start, _ in blocks]
        lengths = [nbytes for _, nbytes in (*self.sends, *self.recvs)]
        self._numbers = *starts, *lengths, sum(nbytes for _, nbytes in self.sends)
        self.width = len(self._numbers) + 1
        self._last: tuple[list[_Numbers], _Blocks | None] = [], None  # those of a call, and what they mean
        self._exports = any(nbytes for peer, (_, nbytes) in enumerate(blocks) if peer != rank)

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The places of the blocks of this rank, and the position of its buffer, -1 if others cannot access it."""
        code = -1  # the CPU cannot copy from or to the buffers
        if self.like.memory is HOST:
            code = self.channel.registered.code(*self._buffer(send, recv)) if self._exports else 0
        return *self._numbers, code

    def _buffer(self, send: int, recv: int) -> tuple[int, int]:
        """The address and the length of the buffer that others access."""
        if self.which == INPUT and send:
            return send, self.sizes[0]
        return recv, self.sizes[1]  # a rank that works in place has its input there too

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the blocks of all ranks that this rank accesses.

        It is None if a buffer that others access is not registered or in GPU memory, if the blocks are short, or if the
        lengths of a sender and its receiver differ.
        """
        codes = [row[self.width - 1] for row in rows]
        accessed = None if min(codes) < 0 else self._accessed(rows)
        if accessed is None:
            return None
        peers, shifts = [0] * (2 * self.channel.size), self.channel.registered.shifts
        for rank, start in accessed:
            peers[2 * rank + self.which] = codes[rank] + start + shifts[codes[rank] >> AREA][rank]
        return peers

    def _accessed(self, rows: Rows) -> list[tuple[int, int]] | None:
        """The ranks whose buffers others access; None if the blocks are short, or if lengths differ."""
        numbers = [row[: self.width - 1] for row in rows]
        last = self._last  # calls in a loop often differ in the positions of buffers only
        if numbers != last[0]:
            last = self._last = numbers, self._read(np.array(numbers))
        return last[1][1] if last[1] is not None and last[1][0] >= self.least else None

    def _read(self, table: np.ndarray) -> _Blocks | None:
        """What the numbers mean; the part of a buffer that this rank accesses is its own block."""
        starts, sends, recvs = np.split(table[:, :-1], 3, axis=1)
        if (sends != recvs.T).any():
            return None
        lengths = recvs.copy() if self.which == OUTPUT else sends.copy()
        np.fill_diagonal(lengths, 0)
        me = self.channel.comm.rank
        ranks = np.flatnonzero(lengths.any(axis=1)).tolist()
        return int(sends.sum()), [(rank, int(starts[rank, me])) for rank in ranks]
