"""Programs: what one rank does in one collective, as a flat list of steps on three buffers.

The buffers are the caller's send and receive buffers and scratch.  `pycoll.compiler.lower` makes programs out of
schedules, `pycoll.runtime.executable` binds them to addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..schedule.moves import Block

SEND, RECV, SCRATCH = range(3)
BLOCKING = 1  # the tag of blocking collectives; every other collective in flight has a tag of its own


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
    """On a GPU: later steps start only after the work that the caller has queued for the buffers."""


class Finish(NamedTuple):
    """Wait until the GPU has completed step number `step`, and so all steps before it."""

    step: int


class Collective(NamedTuple):
    """Run the native collective of MPI, or start it as the only request of the program.

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
    """What one rank does in one collective: steps, the messages that they refer to, bytes of scratch."""

    steps: list[Step]
    messages: list[Message]
    scratch: int
    name: str = ""  # of the algorithm


@dataclass(frozen=True)
class Layout:
    """Where the blocks of a rank are: bytes of any block, its region before the collective, its region after it."""

    size: Callable[[Block], int]
    held: dict[Block, Region]
    wanted: dict[Block, Region]


def is_native(program: Program) -> bool:
    """Whether it runs the native collective of MPI."""
    return bool(program.steps) and type(program.steps[0]) is Collective
