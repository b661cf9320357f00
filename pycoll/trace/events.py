"""What ranks have done, as it was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..compiler.program import BLOCKING
from ..runtime.recording.recorder import TAG_BITS
from .clocks import Clock


class InvalidTrace(ValueError):
    """A folder that does not hold a trace; the message says why."""


class Message(NamedTuple):
    """One end of a message: the `ordinal`-th that this rank sends to or receives from the other."""

    outgoing: bool
    peer: int
    nbytes: int
    round: int
    ordinal: int


@dataclass(eq=False)
class Program:
    """The meaning of the numbers of a program: a step is (action, round, number of the message or bytes)."""

    name: str
    comm: str
    size: int
    nbytes: int
    messages: list[Message]
    steps: list[tuple[str, int, int | None]]


class Event(NamedTuple):
    """What a rank did from `begin` to `end`, in ns by rank 0's clock: a step of a program's run, or a phase."""

    what: str
    begin: int
    end: int
    thread: int
    round: int = 0
    nbytes: int | None = None
    message: Message | None = None
    key: tuple[Any, ...] | None = None  # of the message, the same for both halves


@dataclass(eq=False)
class Collective:
    """One rank's part in a collective; `finished` unless the trace ends in the midst of it."""

    rank: int
    program: Program
    run: int
    begin: int = 0
    end: int = 0
    thread: int = 0
    finished: bool = False
    steps: list[Event] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The primitive and the algorithm."""
        return self.program.name

    @property
    def key(self) -> tuple[Any, ...]:
        """The same on all ranks that take part in it."""
        return self.program.comm, self.program.name, self.run

    @property
    def blocks(self) -> bool:
        """Whether its caller does nothing else meanwhile, in one thread."""
        return self.run >> TAG_BITS == BLOCKING and all(step.thread == self.thread for step in self.steps)

    def rounds(self) -> dict[int, tuple[int, int]]:
        """When each round began and ended."""
        found: dict[int, tuple[int, int]] = {}
        for step in self.steps:
            begin, end = found.get(step.round, (step.begin, step.end))
            found[step.round] = min(begin, step.begin), max(end, step.end)
        return found


@dataclass
class Rank:
    """All activities of one rank; those that may overlap others are `under_way`."""

    number: int
    about: dict[str, Any]
    clock: Clock
    dropped: int = 0
    collectives: list[Collective] = field(default_factory=list)
    phases: list[Event] = field(default_factory=list)
    under_way: list[Event] = field(default_factory=list)

    def steps(self) -> Iterator[Event]:
        """Those of all collectives."""
        for collective in self.collectives:
            yield from collective.steps

    @property
    def end(self) -> int:
        """When the last thing ended."""
        ends = [collective.end for collective in self.collectives]
        return max(ends + [event.end for event in (*self.phases, *self.under_way)], default=0)


@dataclass
class Trace:
    """What is there of a job's ranks; times begin with 0."""

    ranks: dict[int, Rank]
    missing: list[int]
    library: str

    @property
    def end(self) -> int:
        """When the last thing ended."""
        return max((rank.end for rank in self.ranks.values()), default=0)
