"""Collectives on buffers in GPU memory: kernels of each rank access the buffers of the others of its host.

They run the same programs as on registered buffers, in longer pieces.  Before the ranks exchange the positions of their
buffers, each waits for the pending work on its own; before the barrier, for its kernels.  So no rank accesses a buffer
too early, and no buffer is accessed after the call.

A position contains the handle of the allocation, by which other ranks open it.  If not all ranks have opened one that
others access, they try, and exchange the outcome; if one of them fails, all use messages, now and in later calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..base.errors import GPUError
from ..base.user_warnings import warn
from ..compiler.device import READY
from ..compiler.program import INPUT, OUTPUT
from ..compiler.shared import SharedProgram
from .executable import Executable, Runs
from .gpu.ipc import COLUMNS, NotShareable, Position, export
from .gpu.memory import Mapped
from .meeting import Rows
from .sharing import Accessed, Sharing
from .sharing_varying import VaryingSharing

_NOTHING = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)
_Positions = list[tuple[int, int, int, Position]]  # each with its rank, its place among the peer buffers, and a shift


@dataclass
class DeviceSharing(Sharing):
    """Calls of one kind, on a communicator whose ranks may have buffers in GPU memory.

    The table decides whether they use registered memory, GPU memory, or messages, so that all ranks do the same.  Its
    rows begin with those of `shared`, which are for registered memory.  Then come a number that is the same on all
    ranks that can take part, and positions in GPU memory.
    """

    shared: Sharing
    on_gpu: SharedProgram  # for buffers in GPU memory
    memory: Mapped | None  # None if a buffer of this rank is in host memory, or if its GPU cannot combine

    def __post_init__(self) -> None:
        varying = self.shared if isinstance(self.shared, VaryingSharing) else None
        self._columns = [varying.which] if varying else [INPUT, OUTPUT]  # the buffers with positions in the rows
        self._begin = 1 + self.shared.width
        self.width = self._begin + len(self._columns) * COLUMNS
        self._call = self.shared.call if self.memory else -1
        if self.memory:
            lowered = self.memory.lowered
            self.on_gpu = replace(self.on_gpu, program=lowered(self.on_gpu.program), after=lowered(self.on_gpu.after))

    def parts(self, send: int, recv: int, tag: int | None, messages: Callable[[], Iterable[Runs]]) -> Iterator[Any]:
        """The parts of a collective on buffers at these addresses."""
        channel, places, problems = self.channel, (send, recv), list[str]()
        meeting, like = channel.meeting(self.width, tag), self.like.at(None, None)
        if self.memory:
            like.memory = self.memory
            yield from channel.bind_shared([READY], replace(_NOTHING, memory=self.memory), (0, 0), (), None, tag)
        meeting.enter(self.row(send, recv, problems))
        yield meeting.opening
        rows = meeting.rows()
        peers, positions = self.peers(rows), self._positions(rows)
        if peers is not None:
            yield from self.work(meeting, self.program, self.like, places, peers, tag)
        elif positions is not None and (yield from self._are_open(positions, tag, problems)):
            yield from self.work(meeting, self.on_gpu, like, places, self._addresses(positions), tag)
        else:
            yield from messages()
        channel.end_meeting(meeting, tag)
        for problem in problems:  # not before, since the caller may turn warnings into errors
            _warn(problem)

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the peer buffers in registered memory; None on all ranks if they cannot be accessed."""
        return self.shared.peers(rows)

    def accessed(self, rows: Rows) -> Accessed | None:
        """The buffers that other ranks access, if all are in GPU memory; None on all ranks if they use messages."""
        return self.shared.accessed(rows)

    def row(self, send: int, recv: int, problems: list[str] | None = None) -> tuple[int, ...]:
        """The positions of the buffers of this rank, and the kind of its call."""
        positions = [self._position(which, send, recv, problems) for which in self._columns]
        return *self.shared.row(send, recv), self._call, *chain(*positions)

    def _position(self, which: int, send: int, recv: int, problems: list[str] | None) -> list[int]:
        """The position of a buffer of this rank as a part of its row; only zeros if others do not open it."""
        opened = self.channel.opened
        if self.memory and which in self.shared.exported and not opened.refusal:
            try:
                found, offset = export(*self.shared.buffer(which, send, recv), self.memory.device)
                return Position(found, offset, found.number in opened.agreed).numbers()
            except NotShareable as error:
                if problems is not None:
                    problems.append(str(error))
        return [0] * COLUMNS

    def _positions(self, rows: Rows) -> _Positions | None:
        """The positions of the buffers that others access.

        It is None if one of them cannot be opened, or if the calls of the ranks differ.
        """
        found: _Positions = []
        if self._call < 0 or any(row[self._begin - 1] != self._call for row in rows):
            return None
        accessed = self.shared.accessed(rows)
        if accessed is None:
            return None
        for rank, which, shift in accessed:
            begin = self._begin + self._columns.index(which) * COLUMNS
            position = Position.read(rows[rank][begin : begin + COLUMNS])
            if position is None:
                return None
            found.append((rank, 2 * rank + which, shift, position))
        return found

    def _are_open(
        self, positions: _Positions, tag: int | None, problems: list[str]
    ) -> Generator[Executable, Any, bool]:
        """Open the allocations of other ranks; return whether all ranks have opened all of them."""
        channel, problem = self.channel, ""
        try:
            self._addresses(positions)
        except NotShareable as error:
            problem = str(error)
        if all(position.agreed for *_, position in positions):
            if problem:
                raise GPUError(problem)
            return True
        outcomes = channel.meeting(1, tag)
        outcomes.enter((int(not problem),))
        yield outcomes.opening
        succeeded = all(row[0] for row in outcomes.rows())
        channel.end_meeting(outcomes, tag)
        if succeeded:
            mine = channel.registered.place
            channel.opened.agreed |= {one.export.number for rank, *_, one in positions if rank == mine}
        else:
            channel.opened.refusal = problem or "another rank cannot open the memory of the others"
            problems.append(channel.opened.refusal)
        return succeeded

    def _addresses(self, positions: _Positions) -> list[int]:
        """The addresses of the peer buffers; raises NotShareable if one cannot be opened."""
        assert self.memory
        here, opened = self.channel.registered, self.channel.opened
        found = [0] * (2 * len(here.here))
        for rank, place, shift, (allocation, offset, _) in positions:
            base = allocation.base if rank == here.place else opened.address(allocation, self.memory.device)
            found[place] = base + offset + shift
        return found


@cache
def _warn(reason: str) -> None:
    warn(f"ranks do not access the GPU memory of each other, although PYCOLL_CUDA_IPC is 1: {reason}")
