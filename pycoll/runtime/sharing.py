"""Collectives on registered buffers: the ranks tell each other where their buffers are, and then need no messages.

In each call, the ranks first exchange the positions of their buffers, which also says that the buffers are ready.  If
all buffers that others access are registered, each rank runs its program on them (`pycoll.compiler.shared`), and a
barrier says that all have finished.  Otherwise all ranks use messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..compiler.blocks import ProgramKey, compiled
from ..compiler.shared import INPUT, OUTPUT, SharedProgram
from ..schedule.registry import find
from .executable import Executable, Runs, run_in_turn
from .plan import Plan

if TYPE_CHECKING:
    from .channel import Channel

MOST_BOUND = 128  # the most positions of buffers for which executables of a kind of calls are kept
_IN_PLACE = 2  # the column of the table that tells whether a rank works in place; the others are those of its buffers
_ANY = 1 << 30  # longer than any message here


class Meeting:
    """The two synchronizations of a collective on registered buffers, and the table of the positions of all buffers."""

    def __init__(self, channel: Channel, in_flight: bool) -> None:
        size, rank = channel.size, channel.comm.rank
        self.table = np.zeros((size, 3), np.int64)
        self.mine = memoryview(self.table[rank])
        rows = CheckedBuffers(None, self.table, 3, self.table.dtype, True, None)
        nothing = CheckedBuffers(None, None, 0, np.dtype(np.uint8), False, None)
        self.opening, self.closing = (
            channel.bind_anew(
                compiled(ProgramKey(find(name, algorithm), rank, size, 0, length, 8, length > 0, 1, _ANY)),
                *(buffers, (0, address(buffers.recv)), None, in_flight),
            )
            for name, algorithm, length, buffers in [
                ("allgather", "tree", 3, rows),
                ("barrier", "dissemination", 0, nothing),
            ]
        )

    def free(self) -> None:
        """Free the requests."""
        self.opening.free()
        self.closing.free()


class Bound(NamedTuple):
    """The executables for buffers in certain positions: what runs between the synchronizations, and after them."""

    work: Executable
    after: Executable | None


@dataclass
class Sharing:
    """Calls of one kind, on a communicator with registered memory."""

    channel: Channel
    program: SharedProgram
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    operation: Operation | None
    own_block: int | None  # if this rank works in place, the offset of its input in the receive buffer
    uniform: bool  # either all ranks work in place, or none
    _bound: dict[tuple[int, int, bytes], Bound | None] = field(default_factory=dict)

    def parts(
        self, send: Any, recv: Any, tag: int | None, messages: Callable[[], Iterable[Runs]]
    ) -> Iterator[Runs]:
        """The parts of a collective on these buffers; those of `messages` if they are not all registered.

        Without `tag`, it is a blocking collective.
        """
        synchronize = self.channel.registered.synchronize
        meeting = self.channel.meeting(tag)
        self._enter(meeting, send, recv)
        synchronize()
        yield meeting.opening
        bound = self._find(meeting.table, address(send), address(recv), tag is not None)
        if bound is None:
            yield from messages()
        else:
            synchronize()
            yield bound.work
            synchronize()
            yield meeting.closing
            synchronize()
            if bound.after:
                yield bound.after
        self.channel.end_meeting(meeting, tag)

    def _enter(self, meeting: Meeting, send: Any, recv: Any) -> None:
        """Write the positions of the buffers of this rank to its row of the table."""
        registered, row, on_host = self.channel.registered, meeting.mine, self.like.memory is HOST
        row[OUTPUT] = output = registered.code(address(recv), recv.nbytes) if on_host and recv is not None else -1
        if send is not None:
            row[INPUT] = registered.code(address(send), send.nbytes) if on_host else -1
        else:
            row[INPUT] = output + (self.own_block or 0) if output >= 0 else -1
        row[_IN_PLACE] = self.own_block is not None

    def _find(self, table: np.ndarray, send: int, recv: int, in_flight: bool) -> Bound | None:
        """The executables for buffers in these positions; None if a buffer that others access is not registered."""
        key = send, recv, table.tobytes()
        kept = not (in_flight and self.program.program.scratch)
        if kept and key in self._bound:
            return self._bound[key]
        rows = table.tolist()
        mixed = self.uniform and len({row[_IN_PLACE] for row in rows}) > 1
        usable = not mixed and all(rows[rank][which] >= 0 for rank, which in self.program.needed)
        bound = self._bind(rows, send, recv, in_flight) if usable else None
        if kept:
            if len(self._bound) == MOST_BOUND:
                self._bound.clear()
            self._bound[key] = bound
        return bound

    def _bind(self, rows: list[list[int]], send: int, recv: int, in_flight: bool) -> Bound:
        peers = [0] * (2 * self.channel.size)
        for rank, which in self.program.needed:
            if rank != self.channel.comm.rank:
                peers[2 * rank + which] = self.channel.registered.address(rank, rows[rank][which])
        work, after = self.channel.bind_shared(
            [self.program.program, self.program.after], self.like, (send, recv), peers, self.operation, in_flight
        )
        return Bound(work, after if self.program.after.steps else None)


@dataclass
class _ByMessages:
    """A run of a plan that uses messages."""

    plan: Plan
    send: Any
    recv: Any

    @property
    def failed(self) -> bool:
        """Whether it ended early, so that messages may be pending."""
        return self.plan.running is not None and self.plan.running.failed

    def run(self) -> None:
        """Run it."""
        self.plan.run(self.send, self.recv)


@dataclass(kw_only=True)
class SharedPlan(Plan):
    """A plan for buffers that may be registered; `messages` is the plan for those that are not."""

    sharing: Sharing
    messages: Plan

    @classmethod
    def around(cls, plan: Plan, sharing: Sharing) -> SharedPlan:
        """A plan for the same calls as `plan`."""
        alike = {one.name: getattr(plan, one.name) for one in fields(Plan)}
        return cls(**alike, sharing=sharing, messages=plan)

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        if not self._fits(send, recv):
            return False
        parts = self.sharing.parts(
            send if self.gives else None,
            recv if self.gets else None,
            None,
            lambda: [_ByMessages(self.messages, send, recv)],
        )
        run_in_turn(parts, self._broken)
        return True

    def _broken(self, error: BaseException, part: Runs) -> None:
        self.running = part.plan.running if isinstance(part, _ByMessages) else part
        if self.running:
            self.running.failed = True

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        yield from self.sharing.parts(
            send if self.gives else None,
            recv if self.gets else None,
            tag,
            lambda: self.messages._parts(send, recv, tag),
        )

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Use this executable for messages of buffers at these addresses."""
        self.messages.keep(executable, places)

    def forget(self, places: tuple[int, int]) -> None:
        """Drop the executable for messages of buffers at these addresses, because it is freed."""
        self.messages.forget(places)
