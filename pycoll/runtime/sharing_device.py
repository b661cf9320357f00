"""Collectives on buffers in GPU memory: kernels of each rank access the buffers of the others of its host.

They run the same programs as on registered buffers, in longer pieces.  Before the ranks exchange the positions of their
buffers, each waits for the pending work on its own; before the barrier, for its kernels.  So no rank accesses a buffer
too early, and no buffer is accessed after the call.

A position contains the handle of the allocation, by which other ranks open it.  If not all ranks have opened one that
others access, they try, and exchange the outcome; if one of them fails, all use messages, now and in later calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address, overlap
from ..base.errors import GPUError
from ..base.user_warnings import warn
from ..compiler.device import READY
from ..compiler.program import INPUT, OUTPUT
from ..compiler.shared import SharedProgram
from .executable import Executable, Runs, run_in_turn
from .gpu.ipc import HANDLE, Export, NotShareable, export
from .gpu.memory import Mapped
from .interruptions import interruptions_delayed
from .meeting import Rows
from .plan import Plan
from .sharing import EvenSharing

_CALL = 3  # the column with the length of the call, and whether the rank works in place, of ranks that can take part
_BUFFERS = 4  # the first column of the positions
_COLUMNS = 4 + HANDLE // 8  # of each position


_NOTHING = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)


class _Position(NamedTuple):
    """Where a buffer is: its allocation, the offset in it, and whether all ranks have opened the allocation."""

    export: Export
    offset: int
    agreed: bool

    def numbers(self) -> list[int]:
        """The position as a part of a row of the table."""
        number, base, handle = self.export
        return [number, base, self.offset, self.agreed, *memoryview(handle).cast("q")]

    @classmethod
    def read(cls, numbers: Sequence[int]) -> _Position | None:
        """The position with these numbers; None if the buffer cannot be opened."""
        number, base, offset, agreed, *handle = numbers
        return cls(Export(number, base, np.array(handle, np.int64).tobytes()), offset, bool(agreed)) if number else None


_Positions = list[tuple[int, int, _Position]]  # each with its rank, and its place among the peer buffers


@dataclass
class DeviceSharing(EvenSharing):
    """Calls of one kind, on a communicator whose ranks may have buffers in GPU memory.

    The table decides whether they use registered memory, GPU memory, or messages, so that all ranks do the same.
    """

    on_gpu: SharedProgram  # for buffers in GPU memory
    memory: Mapped | None  # None if a buffer of this rank is in host memory, or if its GPU cannot combine

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width = _BUFFERS + 2 * _COLUMNS
        self._call = self.call if self.memory else -1
        self._mine = self.channel.registered.place
        self._accessed = {which for rank, which, _ in self._needed if rank == self._mine}
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

    def row(self, send: int, recv: int, problems: list[str] | None = None) -> tuple[int, ...]:
        """The positions of the buffers of this rank, and the kind of its call."""
        positions = [self._position(which, send, recv, problems) for which in (INPUT, OUTPUT)]
        return *super().row(send, recv), self._call, *chain(*positions)

    def _position(self, which: int, send: int, recv: int, problems: list[str] | None) -> list[int]:
        """The position of a buffer of this rank as a part of its row; only zeros if others do not open it."""
        opened, inside = self.channel.opened, which == INPUT and not send
        if self.memory and which in self._accessed and not opened.refusal:
            start, nbytes = (recv, self.sizes[1]) if inside or which == OUTPUT else (send, self.sizes[0])
            try:
                found, offset = export(start, nbytes, self.memory.device)
            except NotShareable as error:
                if problems is not None:
                    problems.append(str(error))
            else:
                shift = self.own_block or 0 if inside else 0
                return _Position(found, offset + shift, found.number in opened.agreed).numbers()
        return [0] * _COLUMNS

    def _positions(self, rows: Rows) -> _Positions | None:
        """The positions of the buffers that others access.

        It is None if one of them cannot be opened, or if the calls of the ranks differ.
        """
        found: _Positions = []
        if self._call < 0 or any(row[_CALL] != self._call for row in rows):
            return None
        for rank, which, place in self._needed:
            begin = _BUFFERS + which * _COLUMNS
            position = _Position.read(rows[rank][begin : begin + _COLUMNS])
            if position is None:
                return None
            found.append((rank, place, position))
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
            channel.opened.agreed |= {one.export.number for rank, _, one in positions if rank == self._mine}
        else:
            channel.opened.refusal = problem or "another rank cannot open the memory of the others"
            problems.append(channel.opened.refusal)
        return succeeded

    def _addresses(self, positions: _Positions) -> list[int]:
        """The addresses of the peer buffers; raises NotShareable if one cannot be opened."""
        assert self.memory
        found, opened = self._nowhere[:], self.channel.opened
        for owner, place, (allocation, offset, _) in positions:
            base = allocation.base if owner == self._mine else opened.address(allocation, self.memory.device)
            found[place] = base + offset
        return found


@dataclass(kw_only=True)
class DevicePlan(Plan):
    """A plan for calls with buffers in GPU memory that other ranks may open."""

    sharing: DeviceSharing

    @classmethod
    def around(cls, plan: Plan, sharing: DeviceSharing) -> DevicePlan:
        """A plan for the same calls as `plan`."""
        return cls(**{one.name: getattr(plan, one.name) for one in fields(Plan)}, sharing=sharing)

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        arrays = [array for array, used in ((send, self.gives), (recv, self.gets)) if used]
        if not all(map(self._is_usual, arrays)):
            return False
        places = address(send) if self.gives else 0, address(recv) if self.gets else 0
        if len(arrays) == 2 and overlap(places[0], send.nbytes, places[1], recv.nbytes):
            return False
        with interruptions_delayed():  # programs are bound between two synchronizations
            run_in_turn(self.sharing.parts(*places, None, lambda: [self._by_messages(send, recv)]), self._broken)
        return True

    def _is_usual(self, array: Any) -> bool:
        """Whether an array is contiguous, aligned, and on the same GPU as in the first call of this kind."""
        memory = self.sharing.memory
        on_gpu = memory is not None and array.device.id == memory.device
        return on_gpu and array.flags.c_contiguous and array.data.ptr % self.like.dtype.alignment == 0

    def _by_messages(self, send: Any, recv: Any) -> Executable:
        return self.channel.bind(self.program, self.buffers(send, recv), self.operation)

    def _broken(self, error: BaseException, part: Executable) -> None:
        """Report that the collective ended early in this part."""
        self.running, part.failed = part, True

    def parts(self, send: Any, recv: Any) -> None:
        """None: collectives in flight need a full check."""

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        raise NotImplementedError

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Do nothing: the channel keeps the executables."""

    def forget(self, key: Any) -> None:
        """Do nothing: the channel keeps the executables."""


@cache
def _warn(reason: str) -> None:
    warn(f"ranks do not access the GPU memory of each other, although PYCOLL_CUDA_IPC is 1: {reason}")
