"""What one rank does in one collective, as data: a flat list of steps on three buffers.

The buffers are the caller's send and receive buffers and scratch.  `pycoll.compiler.lower` makes programs out of
schedules, `pycoll.runtime.channel` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..schedule.moves import Block

SEND, RECV, SCRATCH = range(3)
BLOCKING = 1  # the tag of blocking collectives; each of the others in flight has its own


class Region(NamedTuple):
    """Bytes of one of the three buffers."""

    buffer: int
    start: int
    size: int

    def overlaps(self, other: Region) -> bool:
        """Whether the two share a byte."""
        return (
            self.buffer == other.buffer
            and self.start < other.start + other.size
            and other.start < self.start + self.size
        )

    def cut(self, segment: int) -> list[Region]:
        """Pieces of `segment` bytes; an empty region is one empty piece."""
        starts = range(0, self.size, segment) if self.size else (0,)
        return [Region(self.buffer, self.start + s, min(segment, self.size - s)) for s in starts]


EMPTY = Region(SCRATCH, 0, 0)


class Message(NamedTuple):
    """One message of a program: at most a segment of bytes, in one of the schedule's rounds."""

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
    """out = left (op) right; `out` may be one of the two."""

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


class Ready(NamedTuple):
    """On a GPU: from here on, what the caller has told it to do with the buffers is done first."""


class Finish(NamedTuple):
    """Wait until the GPU has done the program's step number `step`, and so all before it."""

    step: int


class Collective(NamedTuple):
    """Run MPI's own collective, or start it as the program's only request.

    `form` is "blocking", "nonblocking" or "persistent"; `sends` and `recvs` are its blocks' places where they have
    counts of their own.
    """

    primitive: str
    root: int
    form: str
    sends: tuple[tuple[int, int], ...] | None
    recvs: tuple[tuple[int, int], ...] | None


Step = Start | Wait | Apply | CopyBytes | Divide | Ready | Finish | Collective


@dataclass(frozen=True, eq=False)
class Program:
    """What one rank does in one collective: steps, the messages that they name, bytes of scratch."""

    steps: list[Step]
    messages: list[Message]
    scratch: int
    name: str = ""  # of the algorithm


@dataclass(frozen=True)
class Layout:
    """Where a rank's blocks lie: bytes of any block, where it is held before, where it is wanted after."""

    size: Callable[[Block], int]
    held: dict[Block, Region]
    wanted: dict[Block, Region]
