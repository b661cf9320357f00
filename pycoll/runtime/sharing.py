"""Collectives on registered buffers: the ranks tell each other where their buffers are, and then need no messages.

In each call, the ranks of a host first exchange the positions of their buffers, which also says that the buffers are
ready.  If all buffers that others access are registered, each rank runs its program on them (`pycoll.compiler.shared`),
and a barrier says that all have finished.  Otherwise all of them use messages.  If there are several hosts, the program
has messages between them, and empty messages inside each host in place of the barrier (`pycoll.compiler.pulled`).

MPI orders the loads and stores of a rank around its messages, because their contents would be wrong otherwise.  So what
a rank stored before it sent a message is visible to a rank that has received it, directly or through other ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import mod
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..compiler.align import LINE
from ..compiler.program import INPUT, Program
from ..compiler.shared import SharedProgram
from .bind import Template, template
from .executable import Calls, Deferred, Executable, Runs
from .meeting import Meeting, Rows
from .misses import Misses
from .recording import recorder
from .registered import AREA

if TYPE_CHECKING:
    from .channel import Channel

_KIND = 2  # the column of the rows with the length of the call, and whether the rank works in place
_ELSEWHERE = -1  # in this column, of ranks with buffers in GPU memory
_LINES = repeat(LINE)
Accessed = list[tuple[int, int, int]]  # buffers: the rank, INPUT or OUTPUT, and where the part that is accessed begins


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
        given, got = self.sizes
        if send:
            return *self._registered.codes(send, given, recv, got), self._kind
        output = self._registered.code(recv, got)
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
