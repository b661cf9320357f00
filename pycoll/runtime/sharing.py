"""Collectives on registered buffers: the ranks tell each other where their buffers are, and then need no messages.

In each call, the ranks of a host first exchange the positions of their buffers, which also says that the buffers are
ready.  If all buffers that others access are registered, each rank runs its program on them (`pycoll.compiler.shared`),
and a barrier says that all have finished.  Otherwise all of them use messages.  If there are several hosts, the program
has messages between them, and empty messages inside each host in place of the barrier (`pycoll.compiler.pulled`).

What a rank stored before it sent a message is visible to a rank that has received it, directly or through other ranks:
MPI and the mailboxes of the compiled core order loads and stores around messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..compiler.program import BLOCKING
from ..compiler.shared import SharedProgram
from .executable import Executable
from .meeting import Rows
from .registered import AREA

if TYPE_CHECKING:
    from .channel import Channel

_KIND = 2  # the column of the rows with the length of the call, and whether the rank works in place
_ELSEWHERE = -1  # in this column, of ranks with buffers in GPU memory


@dataclass
class Sharing(ABC):
    """Calls of one kind, on a communicator with registered memory."""

    channel: Channel
    program: SharedProgram
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    sizes: tuple[int, int]  # of the send and the receive buffer, in bytes
    operation: Operation | None
    width: int = field(default=3, init=False)  # of the rows of the table

    @abstractmethod
    def row(self, send: int, recv: int) -> tuple[int, ...]:
        """Where the buffers of this rank are, and how they are used, for the other ranks."""

    @abstractmethod
    def peers(self, rows: Rows) -> list[int] | None:
        """The addresses of the peer buffers of the program; None on all ranks if they cannot be accessed."""

    def parts(
        self, send: int, recv: int, tag: int | None, messages: Callable[[], Iterable[Executable]]
    ) -> Iterator[Any]:
        """The parts of a collective on buffers at these addresses; those of `messages` if they are not registered.

        Without `tag`, it is a blocking collective.
        """
        meeting = self.channel.meeting(self.width, tag)
        meeting.enter(self.row(send, recv))
        yield meeting.opening
        peers = self.peers(meeting.rows())
        if peers is None:
            yield from messages()
        else:
            before, after = self.bound((send, recv), peers, tag or BLOCKING)
            yield before
            if not self.program.has_messages:
                yield meeting.closing
                if self.program.after.steps:
                    yield after
        self.channel.end_meeting(meeting, tag)

    def bound(self, places: tuple[int, int], peers: list[int], tag: int) -> list[Executable]:
        """The programs before and after the second synchronization, bound to buffers at these addresses."""
        channel, programs = self.channel, (self.program.program, self.program.after)
        scratch = channel.scratch(HOST, max(one.scratch for one in programs), tag)
        return [channel.bind_lowered(one, self.like, places, self.operation, tag, peers, scratch) for one in programs]


@dataclass
class EvenSharing(Sharing):
    """Calls of one kind, in which all ranks know the places of the blocks in the buffers of all ranks."""

    nbytes: int  # of the vector or of the block of a rank; the same on all ranks
    own_block: int | None  # if this rank works in place, the offset of its input in the receive buffer
    uniform: bool  # either all ranks work in place, or none

    def __post_init__(self) -> None:
        self._registered = self.channel.registered
        self._needed = [(rank, which, 2 * rank + which) for rank, which in self.program.needed]
        self._nowhere = [0] * (2 * len(self.channel.registered.here))
        # blocks of other lengths would lie elsewhere; and if only some ranks work in place, they would be overwritten
        inside = self.uniform and self.own_block is not None
        call = 2 * self.nbytes + inside
        if self.program.has_messages:  # it reads blocks from the output of other ranks too, so all must use one layout
            call = crc32(repr((self.nbytes, inside, self.like.extents(self.channel.size))).encode())
        # even if no other rank accesses its buffers: the CPU cannot access them
        self._kind = call if self.like.memory is HOST else _ELSEWHERE

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
