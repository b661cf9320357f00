"""The records of a trace: messages, programs, events, collectives, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..compiler.program import BLOCKING
from ..runtime.recording.recorder import TAG_BITS
from .clocks import Clock


class InvalidTrace(ValueError):
    """Raised if a directory does not hold a trace; the message says why."""


class TracedMessage(NamedTuple):
    """One end of a message: the `ordinal`-th one that this rank sends to or receives from `peer`."""

    outgoing: bool
    peer: int
    nbytes: int
    round: int
    ordinal: int


@dataclass(eq=False)
class TracedProgram:
    """A program as recorded.  A step is (action, round, message number or bytes)."""

    name: str
    comm: str
    size: int
    nbytes: int
    messages: list[TracedMessage]
    steps: list[tuple[str, int, int | None]]


class Event(NamedTuple):
    """A step of a program, or a phase, from `begin` to `end` in ns on the clock of rank 0."""

    what: str
    begin: int
    end: int
    thread: int
    round: int = 0
    nbytes: int | None = None
    message: TracedMessage | None = None
    key: tuple[Any, ...] | None = None  # identifies the message on both ranks


@dataclass(eq=False)
class TracedCollective:
    """A collective on one rank; `finished` is false if the trace ends before the collective does."""

    rank: int
    program: TracedProgram
    run: int
    begin: int = 0
    end: int = 0
    thread: int = 0
    finished: bool = False
    steps: list[Event] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The primitive and the algorithm, joined by a dot."""
        return self.program.name

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the collective on all its ranks."""
        return self.program.comm, self.program.name, self.run

    @property
    def blocks(self) -> bool:
        """Whether it is a blocking call, run by one thread."""
        return self.run >> TAG_BITS == BLOCKING and all(step.thread == self.thread for step in self.steps)

    def rounds(self) -> dict[int, tuple[int, int]]:
        """The begin and end of each round."""
        found: dict[int, tuple[int, int]] = {}
        for step in self.steps:
            begin, end = found.get(step.round, (step.begin, step.end))
            found[step.round] = min(begin, step.begin), max(end, step.end)
        return found


@dataclass
class TracedRank:
    """The activities of one rank; `under_way` are those that may overlap others."""

    number: int
    about: dict[str, Any]
    clock: Clock
    dropped: int = 0
    collectives: list[TracedCollective] = field(default_factory=list)
    phases: list[Event] = field(default_factory=list)
    under_way: list[Event] = field(default_factory=list)

    def steps(self) -> Iterator[Event]:
        """Yield the steps of all collectives."""
        for collective in self.collectives:
            yield from collective.steps

    @property
    def end(self) -> int:
        """The time of the last event."""
        ends = [collective.end for collective in self.collectives]
        return max(ends + [event.end for event in (*self.phases, *self.under_way)], default=0)


@dataclass
class Trace:
    """The trace of a job; times start at 0."""

    ranks: dict[int, TracedRank]
    missing: list[int]
    library: str

    @property
    def end(self) -> int:
        """The time of the last event."""
        return max((rank.end for rank in self.ranks.values()), default=0)
