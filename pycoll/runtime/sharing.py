"""Collectives on registered buffers: the ranks tell each other where their buffers are, and then need no messages.

In each call, the ranks of a host first exchange the positions of their buffers, which also says that the buffers are
ready.  If all buffers that others access are registered, each rank runs its program on them (`pycoll.compiler.shared`),
and a barrier says that all have finished.  Otherwise all of them use messages.  If there are several hosts, the program
has messages between them, and empty messages inside each host in place of the barrier (`pycoll.compiler.pulled`).

MPI orders the loads and stores of a rank around its messages, because their contents would be wrong otherwise.  So what
a rank stored before it sent a message is visible to a rank that has received it, directly or through other ranks.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import mod
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..compiler.align import LINE
from ..compiler.program import INPUT, Program
from ..compiler.shared import SharedProgram
from .bind import Template, template
from .executable import Calls, Deferred, Executable, Runs, has_run, run_in_turn
from .interruptions import interruptions_delayed
from .meeting import Meeting, Rows
from .misses import Misses
from .plan import PlacedPlan, Plan, StagedPlan
from .recording import recorder
from .registered import AREA

if TYPE_CHECKING:
    from .channel import Channel

get_address = MPI.Get_address
MOST_KNOWN = 1 << 12  # the most calls that a plan keeps for buffers in known positions
MOST_SEEN = 1 << 8  # the most positions that it remembers
_KIND = 2  # the column of the rows with the length of the call, and whether the rank works in place
_ELSEWHERE = -1  # in this column, of ranks with buffers in GPU memory
_LINES = repeat(LINE)
_NO_DELAY = contextlib.nullcontext()
Accessed = list[tuple[int, int, int]]  # buffers: the rank, INPUT or OUTPUT, and where the part that is accessed begins
_Key = tuple[int, int, Rows]  # the addresses of the buffers of this rank, and the positions of those of all ranks


@dataclass
class Sharing(ABC):
    """Calls of one kind, on a communicator with registered memory."""

    binds: ClassVar[bool] = False  # whether all parts of a task are bound when others are complete

    channel: Channel
    program: SharedProgram
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    sizes: tuple[int, int]  # of the send and the receive buffer, in bytes
    operation: Operation | None
    width: int = field(default=3, init=False)  # of the rows of the table
    misses: Misses | None = field(default=None, init=False)  # if MPI would run such calls without registered memory
    call: int = field(default=0, init=False)  # the same on all ranks that can take part
    exported: set[int] = field(default_factory=set, init=False)  # the buffers of this rank that others may access
    whole: Program | None = field(default=None, init=False)  # all that follows the first synchronization of a task
    # of the programs before and after the second synchronization, by the offsets of the buffers in cache lines
    templates: dict[tuple[int, ...], tuple[Template, Template]] = field(default_factory=dict, init=False)

    @abstractmethod
    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """Where the buffers of this rank are, and how they are used, for the other ranks."""

    def whole_row(self, send: int, recv: int) -> tuple[int, ...]:
        """The row with all its numbers, also if the last ones suffice."""
        return self.row(send, recv)

    def reader(self, meeting: Meeting) -> Callable[[], Rows | None]:
        """A function that returns the rows; None on all ranks if their first numbers exclude registered buffers."""
        return meeting.rows

    @abstractmethod
    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the peer buffers of the program; None on all ranks if they cannot be accessed."""

    @abstractmethod
    def accessed(self, rows: Rows) -> Accessed | None:
        """The buffers that other ranks access, if all are in GPU memory; None on all ranks if they use messages."""

    def buffer(self, which: int, send: int, recv: int) -> tuple[int, int]:
        """The address and the length of the input or output of this rank."""
        if which == INPUT and send:
            return send, self.sizes[0]
        return recv, self.sizes[1]  # a rank that works in place has its input there too

    def parts(self, send: int, recv: int, tag: int | None, messages: Callable[[], Iterable[Runs]]) -> Iterator[Any]:
        """The parts of a collective on buffers at these addresses; those of `messages` if they are not registered.

        Without `tag`, it is a blocking collective.
        """
        meeting = self.channel.meeting(self.width, tag)
        deferred = bool(tag) and not (self.program.has_messages or recorder.current)
        rest = _Rest(self, meeting, (send, recv)) if deferred else None
        meeting.opening.leads = not deferred
        meeting.enter(self.row(send, recv))
        yield meeting.opening
        if rest:
            yield rest
            if rest.by_messages:
                yield from messages()
        else:
            yield from self._in_parts(meeting, (send, recv), tag, messages)
        self.channel.end_meeting(meeting, tag)

    def _in_parts(
        self, meeting: Meeting, places: tuple[int, int], tag: int | None, messages: Callable[[], Iterable[Runs]]
    ) -> Iterator[Any]:
        """The parts after the first synchronization."""
        peers = self.peers_at(meeting)
        if self.misses and tag is None:
            (self.misses.miss() if peers is None else self.misses.reset())()
        if peers is None:
            yield from messages()
        else:
            bound = self.bound(self.program, self.like, places, peers, tag)
            yield from self.work(meeting, self.program, bound)

    def peers_at(self, meeting: Meeting) -> list[int] | None:
        """The addresses of the peer buffers after the first synchronization; None on all ranks for messages."""
        rows = self.reader(meeting)()
        return None if rows is None else self.peers(rows)

    def calls(self, bases: tuple[int, ...]) -> tuple[Calls, Calls]:
        """The calls before and after the second synchronization, on buffers in host memory at these addresses."""
        offsets = tuple(map(mod, bases, _LINES)) if self.operation else ()
        work, after = self.templates.get(offsets) or self._new_templates(offsets)
        return work.calls(bases, []), after.calls(bases, []) if after.steps else []

    def _new_templates(self, offsets: tuple[int, ...]) -> tuple[Template, Template]:
        kind = offsets, self.like.dtype, self.operation, self.channel.size
        both = template(self.program.program, *kind), template(self.program.after, *kind)
        self.templates[offsets] = both
        return both

    def bound(
        self,
        program: SharedProgram,
        like: CheckedBuffers,
        places: tuple[int, int],
        peers: Sequence[int],
        tag: int | None,
    ) -> list[Executable]:
        """The programs before and after the second synchronization, bound to buffers at these addresses."""
        programs = [program.program, program.after]
        return self.channel.bind_shared(programs, like, places, peers, self.operation, tag)

    def work(self, meeting: Meeting, program: SharedProgram, executables: list[Executable]) -> Iterator[Executable]:
        """The parts after the first synchronization, if the buffers of all ranks can be accessed."""
        yield executables[0]
        if not program.has_messages:
            yield meeting.closing
            if program.after.steps:
                yield executables[1]


@dataclass
class _Rest(Deferred):
    """What follows the first synchronization of a task, in host memory; one executable, because each part takes time.

    If a buffer is not registered, the executable is empty, and messages follow.
    """

    sharing: Sharing
    meeting: Meeting
    places: tuple[int, int]  # the addresses of the buffers
    by_messages: bool = False

    def bound(self) -> Executable:
        """The executable."""
        sharing, closing = self.sharing, self.meeting.closing
        peers = sharing.peers_at(self.meeting)
        if peers is None:
            self.by_messages = True
            nothing = Executable(self.program, [], [], None)
            nothing.leads = True
            return nothing
        work, after = sharing.program.program, sharing.program.after
        nbytes = max(work.scratch, after.scratch)
        scratch = HOST.allocate(nbytes) if nbytes else None
        first, last = sharing.calls((*self.places, address(scratch), *peers))
        if sharing.whole is None:
            sharing.whole = replace(closing.program, steps=[*work.steps, *closing.program.steps, *after.steps])
        rest = Executable(sharing.whole, [*first, *closing.calls, *last], closing.requests, scratch)
        rest.waits = [*[None] * len(first), *closing.waits, *[None] * len(last)]
        return rest


@dataclass
class EvenSharing(Sharing):
    """Calls of one kind, in which all ranks know the places of the blocks in the buffers of all ranks."""

    nbytes: int  # of the vector or of the block of a rank; the same on all ranks
    own_block: int | None  # if this rank works in place, the offset of its input in the receive buffer
    uniform: bool  # either all ranks work in place, or none

    def __post_init__(self) -> None:
        self._registered = self.channel.registered
        self._needed = [(rank, which, 2 * rank + which) for rank, which in self.program.needed]
        self.exported = {which for rank, which in self.program.needed if rank == self.channel.registered.place}
        self._nowhere = [0] * (2 * len(self.channel.registered.here))
        # blocks of other lengths would lie elsewhere; and if only some ranks work in place, they would be overwritten
        inside = self.uniform and self.own_block is not None
        self.call = 2 * self.nbytes + inside
        if self.program.has_messages:  # it reads blocks from the output of other ranks too, so all must use one layout
            self.call = crc32(repr((self.nbytes, inside, self.like.extents(self.channel.size))).encode())
        # even if no other rank accesses its buffers: the CPU cannot access them
        self._kind = self.call if self.like.memory is HOST else _ELSEWHERE

    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """The positions of the buffers of this rank, and the kind of its call."""
        code, (given, got) = self._registered.code, self.sizes
        output = code(recv, got)
        if send:
            return code(send, given), output, self._kind
        return output + (self.own_block or 0) if output >= 0 else -1, output, self._kind

    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the buffers of all ranks.

        It is None if a buffer that others access is not registered, or if the calls of the ranks differ.
        """
        found, shifts = self._nowhere[:], self._registered.shifts
        for rank, which, place in self._needed:
            code = rows[rank][which]
            if code < 0:
                return None
            found[place] = code + shifts[code >> AREA][rank]
        if self._kind == _ELSEWHERE:
            return None
        for row in rows:
            if row[_KIND] != self._kind:
                return None
        return found

    def accessed(self, rows: Rows) -> Accessed:
        """The buffers that other ranks access."""
        return [(rank, which, 0) for rank, which in self.program.needed]

    def buffer(self, which: int, send: int, recv: int) -> tuple[int, int]:
        """The address and the length of the input or output of this rank."""
        start, nbytes = super().buffer(which, send, recv)
        shift = self.own_block or 0 if which == INPUT and not send else 0
        return start + shift, nbytes - shift


@dataclass(kw_only=True)
class SharedPlan(Plan):
    """A plan for buffers that may be registered; `messages` is the plan for those that are not."""

    sharing: Sharing
    messages: Plan
    meeting: Meeting
    scratch_address: int
    rest: Executable  # runs the calls that follow the first synchronization
    rows: Callable[[], Rows | None]
    last_calls: Calls  # of the second synchronization
    known: dict[_Key, Calls] = field(default_factory=dict)
    count: int = 0  # of these calls
    seen: set[int] = field(default_factory=set)  # the hashes of keys without calls
    ran: bool = False  # the last call has run with messages
    copied: bool  # `messages` copies the buffers, or has an executable for them, so that nothing follows its messages

    @classmethod
    def around(cls, plan: Plan, sharing: Sharing) -> SharedPlan:
        """A plan for the same calls as `plan`."""
        channel, program = sharing.channel, sharing.program.program
        scratch = channel.shared_scratch(HOST, program.scratch)
        meeting = channel.meeting(sharing.width, None)
        return cls(
            **plan.common(),
            sharing=sharing,
            messages=plan,
            meeting=meeting,
            rows=sharing.reader(meeting),
            last_calls=meeting.last_calls,
            rest=Executable(program, [], [], scratch),
            copied=isinstance(plan, StagedPlan) or (isinstance(plan, PlacedPlan) and plan.stage is not None),
            scratch_address=address(scratch),
        )

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        places = self._places(send, recv)
        if places is None or self._is_left():
            return False
        if recorder.current:
            with interruptions_delayed():
                parts = self.sharing.parts(*places, None, lambda: [_ByMessages(self.messages, send, recv)])
                run_in_turn(parts, self._broken)
            return True
        meeting, delayed = self.meeting, None
        meeting.enter(self.sharing.row(*places))
        opening = self.running = meeting.opening
        interrupted = opening.interrupted
        for last in (False, True):
            try:
                if not meeting.meet():
                    opening.run()
                break
            except BaseException as error:
                if opening.failed:
                    raise
                delayed = delayed or error
                if opening.interrupted > interrupted:
                    break
                if last:
                    opening.failed = True  # the other ranks wait
                    raise
        interrupted, self.ran = self.rest.interrupted, False
        for last in (False, True):
            try:  # Python handles signals at the beginning of functions: so also in the one that is called here
                self._run_rest(places, send, recv)
                break
            except BaseException as error:
                delayed = delayed or error
                failed = self.messages.running and self.messages.running.failed
                if not failed and (self.ran or self.rest.interrupted > interrupted or has_run(error)):
                    break
                if last or failed:
                    opening.failed, self.running = True, opening  # the other ranks wait
                    raise
                # a signal came before the first call
        if delayed:
            raise delayed
        return True

    def _is_left(self) -> bool:
        """Whether MPI runs such calls from now on; then drop the plans, because the choices change."""
        if not (self.sharing.misses and self.sharing.misses.many):
            return False
        self.channel.forget_plans()
        return True

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """The parts of a task on these buffers; None if they need a full check."""
        return None if self._is_left() else super().parts(send, recv)

    def _places(self, send: Any, recv: Any) -> tuple[int, int] | None:
        """The addresses of the buffers, or 0; None if they need a full check."""
        start = other = 0
        if self.gives:
            if not send.flags.c_contiguous:
                return None
            start = get_address(send)
        if self.gets:
            if not (recv.flags.carray if self.writes else recv.flags.c_contiguous):
                return None
            other = get_address(recv)
            given, got = self.used
            if start < other + got and other < start + given and start:  # they overlap
                return None
        return start, other

    def _run_rest(self, places: tuple[int, int], send: Any, recv: Any) -> None:
        """Run what follows the first synchronization."""
        calls, rows = None, self.rows()
        if rows is not None:
            key = *places, rows
            calls = self.known.get(key) or self._bind(key)
        if calls is None and self.sharing.misses:  # `messages` is the native collective
            executable = self.channel.bind_anew(self.program, self.buffers(send, recv), places, self.operation)
            calls = [*executable.calls, self.sharing.misses.miss()]
        if calls is None:
            with _NO_DELAY if self.copied else interruptions_delayed():
                self.messages.run(send, recv)
                self.ran, self.running = True, self.messages.running
        else:
            self.running = self.rest
            self.rest.run(calls)

    def _bind(self, key: _Key) -> Calls | None:
        """The calls for buffers in these positions, or None for messages; they are kept from the second time on.

        They are those between the two synchronizations, in the second one, and after it.
        """
        sharing, (send, recv, rows) = self.sharing, key
        peers = sharing.peers(rows)
        if peers is None:
            return None
        if sharing.program.has_messages:
            executable = sharing.channel.bind_for_long(
                sharing.program.program, sharing.like, (send, recv), sharing.operation, peers
            )
            executable.known.append((self, key))
            calls = self.known[key] = executable.calls
            return calls
        work, after = sharing.calls((send, recv, self.scratch_address, *peers))
        calls = [*work, *self.last_calls, *after]
        if sharing.misses:
            calls.append(sharing.misses.reset())
        if (number := hash(key)) in self.seen:
            self._keep(key, calls)
        else:
            if len(self.seen) == MOST_SEEN:
                self.seen.clear()
            self.seen.add(number)
        return calls

    def _keep(self, key: _Key, calls: Calls) -> None:
        """Keep calls for the next time."""
        self.seen.discard(hash(key))
        self.count += len(calls)
        if self.count > MOST_KNOWN:
            self.known.clear()
            self.count = len(calls)
        self.known[key] = calls

    def _broken(self, error: BaseException, part: Any) -> None:
        """Report that the collective ended early in this part."""
        self.running = part.plan.running if isinstance(part, _ByMessages) else part
        if self.running:
            self.running.failed = True

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        places = address(send) if self.gives else 0, address(recv) if self.gets else 0
        yield from self.sharing.parts(*places, tag, lambda: self.messages._parts(send, recv, tag))

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Use this executable for messages of buffers at these addresses."""
        self.messages.keep(executable, places)

    def forget(self, key: Any) -> None:
        """Drop the calls for buffers in these positions, because their requests are freed."""
        self.known.pop(key, None)


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
