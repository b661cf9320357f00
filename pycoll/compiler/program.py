"""Programs: the steps of one rank in one collective, as a flat list of operations on three buffers.

The buffers are the send buffer and the receive buffer of the caller, and scratch; programs for registered buffers also
use those of other ranks.  `pycoll.compiler.lower` makes programs from schedules.  The compiled core runs them;
`pycoll.runtime.bind` binds them to addresses where Python runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..schedule.moves import Block

SEND, RECV, SCRATCH = range(3)
READY, DONE = range(2)  # counters in the memory that the ranks of a host share
SLOTS = (176, 16, False), (1 << 12, 16, False), (1 << 14, 8, False), (1 << 16, 2, True)
"""The kinds of slots in this memory: bytes of a slot, how many are used in turn, and whether results are beside.

The first kind and the counters are in one page, so a communicator with short calls only needs little memory.
"""
INPUT, OUTPUT = range(2)  # the registered buffers of each rank of a host; one buffer if the rank works in place
BLOCKING = 1  # the tag of blocking collectives; every other collective in flight has its own tag


def peer_buffer(rank: int, which: int) -> int:
    """Return the number of the input or output buffer of a rank of this host; they follow the three own buffers."""
    return SCRATCH + 1 + 2 * rank + which


def peer_of(buffer: int) -> tuple[int, int]:
    """Return the rank to which a peer buffer belongs, and whether it is its input or its output."""
    return divmod(buffer - SCRATCH - 1, 2)


class Region(NamedTuple):
    """A range of bytes in one of the three buffers, or in a registered buffer of a rank."""

    buffer: int
    start: int
    size: int

    def overlaps(self, other: Region) -> bool:
        """Return whether the two regions share a byte."""
        return (
            self.buffer == other.buffer
            and self.start < other.start + other.size
            and other.start < self.start + self.size
        )

    def part(self, start: int, end: int) -> Region:
        """Return the range from `start` to `end` in this region."""
        return Region(self.buffer, self.start + start, end - start)

    def cut(self, segment: int) -> list[Region]:
        """Return pieces of at most `segment` bytes; an empty region is one empty piece."""
        starts = range(0, self.size, segment) if self.size else (0,)
        return [Region(self.buffer, self.start + s, min(segment, self.size - s)) for s in starts]


EMPTY = Region(SCRATCH, 0, 0)


class Message(NamedTuple):
    """One message of a program, of at most one segment; `round` is the index of its round in the schedule."""

    outgoing: bool
    peer: int
    region: Region
    round: int


class Start(NamedTuple):
    """Start message number `message`."""

    message: int


class Wait(NamedTuple):
    """Wait until message number `message` is complete."""

    message: int


class Apply(NamedTuple):
    """Compute ``out = left (op) right``; `out` may be one of the operands."""

    left: Region
    right: Region
    out: Region


class CopyBytes(NamedTuple):
    """Copy bytes."""

    source: Region
    to: Region


class Divide(NamedTuple):
    """Divide by the number of ranks, in floating point."""

    region: Region


class Post(NamedTuple):
    """Let the other ranks of the host know that this rank has reached a point in a turn: READY or DONE."""

    counter: int


class Await(NamedTuple):
    """Wait until a rank of the host has posted this counter in the current turn."""

    rank: int
    counter: int


class FindPeers(NamedTuple):
    """Find the buffers of the other ranks of the host in a table of positions.

    If they are not registered, go to step number `otherwise`.
    """

    otherwise: int


class Skip(NamedTuple):
    """Go to step number `to`, a later one."""

    to: int


class Ready(NamedTuple):
    """Make later steps on a GPU wait for the work on the buffers that the caller has queued."""


class Finish(NamedTuple):
    """Wait until the GPU has completed step number `step`, and therefore all steps before it."""

    step: int


class Collective(NamedTuple):
    """Run the native collective of MPI, or start it as the only request of the program.

    `form` is "blocking", "nonblocking" or "persistent".  `sends` and `recvs` are the extents of blocks of different
    lengths.
    """

    primitive: str
    root: int
    form: str
    sends: tuple[tuple[int, int], ...] | None
    recvs: tuple[tuple[int, int], ...] | None


Step = Start | Wait | Apply | CopyBytes | Divide | Post | Await | FindPeers | Skip | Ready | Finish | Collective


@dataclass(frozen=True, eq=False)
class Program:
    """The program of one rank: steps, the messages that they refer to, and the bytes of scratch."""

    steps: list[Step]
    messages: list[Message]
    scratch: int
    name: str = ""  # the name of the algorithm
    synchronizing: int = 0  # how many messages, the first ones, only synchronize the ranks of a host


@dataclass(frozen=True)
class Layout:
    """The layout of the blocks of a rank: their sizes in bytes, and their regions before and after the collective.

    A block that a rank wants several times, since an all-gather has several edges between two ranks, is in `again` too.
    """

    size: Callable[[Block], int]
    held: dict[Block, Region]
    wanted: dict[Block, Region]
    again: Sequence[tuple[Block, Region]] = ()


def is_native(program: Program) -> bool:
    """Return whether the program runs the native collective of MPI."""
    return bool(program.steps) and type(program.steps[0]) is Collective
