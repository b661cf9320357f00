"""Collectives on buffers in GPU memory: kernels of each rank access the buffers of the others of its host.

They run the same programs as on registered buffers, in longer pieces.  On one host, kernels wait for the pending work
on the buffers of others, by events that the processes share (`pycoll.runtime.gpu.signals`).  At the end of the call,
after the barrier, each rank waits for the kernels of all.  So no rank accesses a buffer too early, no buffer is
accessed after the call, and the exchange and the barrier take place while the GPU works.  If ranks may fail, or with
PYCOLL_CUDA_EVENTS=0, the host waits for its GPU before the exchange and before the barrier instead: a stream might wait
forever for the event of a process that has died.

A position contains the handle of the allocation, by which other ranks open it.  If not all ranks have opened one that
others access, they try, and exchange the outcome; if one of them fails, all use messages, now and in later calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..base.errors import GPUError
from ..base.user_warnings import warn
from ..compiler.device import READY
from ..compiler.program import BLOCKING, INPUT, OUTPUT, Finish, Program, Ready, Step
from ..compiler.shared import SharedProgram
from .executable import Executable, PythonSteps
from .failures import TOLERANT
from .gpu import signals
from .gpu.ipc import COLUMNS, NotShareable, Position, export
from .gpu.memory import Mapped
from .gpu.signals import AllDone, Signal, SignalHandle
from .meeting import Rows
from .plan import MOST_IDLE, MOST_SCRATCH
from .recording import recorder
from .recording.steps import Tracer
from .sharing import Accessed, Sharing
from .sharing_varying import VaryingSharing

_NOW, _WHEN = (Program([step], [], 0, "events") for step in (Ready(), Finish(0)))
_NO_SIGNAL = [0] * signals.COLUMNS
_NOTHING = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)
_Key = tuple[tuple[int, int], tuple[int, ...]]  # the addresses of the own buffers, and of those of all ranks
_Positions = list[tuple[int, int, int, Position]]  # each with its rank, its place among the peer buffers, and a shift


class _Found(NamedTuple):
    """What a rank needs to know of the other ranks."""

    positions: _Positions
    signals: list[SignalHandle]

    def all(self) -> Iterator[Position | SignalHandle]:
        """All that a rank opens."""
        yield from (position for *_, position in self.positions)
        yield from self.signals


@dataclass
class DeviceSharing(Sharing):
    """Calls of one kind, on a communicator whose ranks may have buffers in GPU memory.

    The table decides whether they use registered memory, GPU memory, or messages, so that all ranks do the same.  Its
    rows begin with those of `shared`, which are for registered memory.  Then come a number that is the same on all
    ranks that can take part, and positions in GPU memory.
    """

    binds = True

    shared: Sharing
    on_gpu: SharedProgram  # for buffers in GPU memory
    memory: Mapped | None  # None if a buffer of this rank is in host memory, or if its GPU cannot combine
    # of completed collectives, for the next ones in flight, by the addresses of the buffers of all ranks
    idle: dict[_Key, list[list[Executable]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        varying = self.shared if isinstance(self.shared, VaryingSharing) else None
        self._columns = [varying.which] if varying else [INPUT, OUTPUT]  # the buffers with positions in the rows
        self._begin = 1 + self.shared.width
        self._end = self.width = self._begin + len(self._columns) * COLUMNS
        facts = self.channel.facts
        self._signals = facts.cuda_events and facts.host_count == 1 and not TOLERANT  # the same on all ranks
        if self._signals:
            self.width += signals.COLUMNS
        self._call = self.shared.call if self.memory else -1
        if self.memory:
            lowered, ended = self.memory.lowered, self.memory.ended
            begin = lowered if self.program.has_messages or self._signals else ended
            self.on_gpu = replace(self.on_gpu, program=begin(self.on_gpu.program), after=ended(self.on_gpu.after))

    def parts(
        self, send: int, recv: int, tag: int | None, messages: Callable[[], Iterable[Executable]]
    ) -> Iterator[Any]:
        """The parts of a collective on buffers at these addresses."""
        channel, problems = self.channel, list[str]()
        meeting, like = channel.meeting(self.width, tag), self.like.at(None, None)
        signal = self._signal(problems)
        if self.memory:
            like.memory = self.memory
        if signal:
            yield self._now(signal.announce)
        elif self.memory and not (self.program.has_messages or self._signals):
            yield channel.bind_lowered(READY, replace(_NOTHING, memory=self.memory), (0, 0), None, tag or BLOCKING)
        meeting.enter(self.row(send, recv, problems, signal))
        yield meeting.opening
        rows = meeting.rows()
        peers, found = self.peers(rows), self._found(rows)
        if peers is not None:
            bound = self.bound(self.program, self.like, (send, recv), peers, tag)
            yield from self.work(meeting, self.program, bound)
        elif found is not None and (yield from self._are_open(found, tag, problems, signal)):
            key = (send, recv), tuple(self._addresses(found.positions))
            executables = self._take(like, key, tag)
            work = self.work(meeting, self.on_gpu, executables)
            yield from self._between_signals(work, signal, found.signals) if signal else work
            self._keep(executables, key, tag)
        else:
            yield from messages()
        channel.end_meeting(meeting, tag)
        if signal:
            signals.give_back(signal)
        for problem in problems:  # not before, since the caller may turn warnings into errors
            _warn(problem)

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the peer buffers in registered memory; None on all ranks if they cannot be accessed."""
        return self.shared.peers(rows)

    def accessed(self, rows: Rows) -> Accessed | None:
        """The buffers that other ranks access, if all are in GPU memory; None on all ranks if they use messages."""
        return self.shared.accessed(rows)

    def _signal(self, problems: list[str]) -> Signal | None:
        """A signal for this call, if it needs one."""
        if self.memory and self._signals and not self.channel.opened.refusal:
            try:
                return signals.take(self.memory.device)
            except NotShareable as error:
                problems.append(str(error))
        return None

    def _between_signals(
        self, work: Iterator[Executable], signal: Signal, others: list[SignalHandle]
    ) -> Iterator[Executable]:
        """The parts of a program after those of other ranks have been announced, and until all are complete."""
        yield self._now(signal.after(others))
        yield next(work)
        yield self._now(signal.finish)
        yield next(work)  # the barrier
        yield self._when(AllDone(signal, others))
        yield from work

    def _take(self, like: CheckedBuffers, key: _Key, tag: int | None) -> list[Executable]:
        """The programs for buffers at these addresses; they may have been bound for a collective that is complete."""
        known = self.idle.get(key) if tag is not None else None
        found = known.pop() if known else self.bound(self.on_gpu, like, *key, tag)
        if tag is not None:
            for executable in found:
                executable.tag[:] = (tag,)
        return found

    def _keep(self, executables: list[Executable], key: _Key, tag: int | None) -> None:
        """Keep the executables of a collective in flight that is complete, if they have little scratch."""
        if tag is not None and self.on_gpu.program.scratch <= MOST_SCRATCH:
            if len(self.idle) == MOST_IDLE and key not in self.idle:
                self.idle.clear()
            self.idle.setdefault(key, []).append(executables)

    def _now(self, call: Callable[[], object]) -> Executable:
        """A part that makes a call to the GPU, which does not wait."""
        return self._recorded(PythonSteps(_NOW, [call]))

    def _when(self, done: AllDone) -> Executable:
        """A part that waits for the GPU."""
        return self._recorded(PythonSteps(_WHEN, [done.Wait], None, {0: done}))

    def _recorded(self, part: PythonSteps) -> Executable:
        if recorder.current:
            part.record(Tracer(recorder.current, self.channel.comm, part.program, 0, [0], _launches))
        return part

    def row(
        self, send: int, recv: int, problems: list[str] | None = None, signal: Signal | None = None
    ) -> tuple[int, ...]:
        """The positions of the buffers of this rank, the kind of its call, and its signal."""
        positions = [self._position(which, send, recv, problems) for which in self._columns]
        row = *self.shared.row(send, recv), self._call, *chain(*positions)
        if not self._signals:
            return row
        agreed = self.channel.opened.agreed
        mine = SignalHandle(signal.number, signal.handles, signal.number in agreed).numbers() if signal else _NO_SIGNAL
        return *row, *mine

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

    def _found(self, rows: Rows) -> _Found | None:
        """The positions of the buffers that others access, and the signals of the other ranks.

        It is None if one of them cannot be opened, or if the calls of the ranks differ.
        """
        found = _Found([], [])
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
            found.positions.append((rank, 2 * rank + which, shift, position))
        for rank, row in enumerate(rows if self._signals else ()):
            signal = SignalHandle.read(row[self._end : self.width])
            if signal is None:
                return None
            if rank != self.channel.registered.place:
                found.signals.append(signal)
        return found

    def _are_open(
        self, found: _Found, tag: int | None, problems: list[str], mine: Signal | None
    ) -> Generator[Executable, Any, bool]:
        """Open the allocations and signals of other ranks; return whether all ranks have opened all of them."""
        channel, problem = self.channel, ""
        assert self.memory
        try:
            self._addresses(found.positions)
            for other in found.signals:
                signals.opened(other, self.memory.device)
        except NotShareable as error:
            problem = str(error)
        if all(one.agreed for one in found.all()) and (mine is None or mine.number in channel.opened.agreed):
            if problem:
                raise GPUError(problem)
            return True
        outcomes = channel.meeting(1, tag)
        outcomes.enter((int(not problem),))
        yield outcomes.opening
        succeeded = all(row[0] for row in outcomes.rows())
        channel.end_meeting(outcomes, tag)
        if succeeded:
            place = channel.registered.place
            channel.opened.agreed |= {one.export.number for rank, *_, one in found.positions if rank == place}
            channel.opened.agreed |= {mine.number} if mine else set()
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


def _launches(step: Step) -> bool:
    return isinstance(step, Ready)


@cache
def _warn(reason: str) -> None:
    warn(f"ranks do not access the GPU memory of each other, although PYCOLL_CUDA_IPC is 1: {reason}")
