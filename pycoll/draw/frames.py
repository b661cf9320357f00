"""Turns the symbolic run of a schedule into frames: the messages of each step, and the blocks held after it.

A film is the sequence of all frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import isgenerator
from itertools import chain
from types import CodeType
from typing import Any, NamedTuple

from ..schedule.hosts import Hosts
from ..schedule.moves import Block, Combine, Copy, Recv, Reduce, Round, Send
from ..schedule.neighborhood import Neighborhood
from ..schedule.neighbors import Neighbors
from ..schedule.proof import Counts, RankState, prove
from ..schedule.registry import Algorithm, counts_of
from ..schedule.symbols import Value
from .language import say

MANY = 8  # ranks that can be drawn block by block; more are rows of a matrix
VERY_MANY = 16  # ranks that have rows of their own in the matrix; of more, neighbors that do the same are one band


class DrawnMessage(NamedTuple):
    """A message in a step; on arrival its blocks are either `combined` with the blocks held, or replace them."""

    source: int
    to: int
    blocks: tuple[Block, ...]
    combined: bool


@dataclass
class Frame:
    """The messages or local moves of one step.  Steps are the rounds along the critical path, as the proof counts them.

    Step 0 is the start.  A `local` frame has no messages; it has the local moves that ranks make after the step.
    """

    step: int
    local: bool = False
    rounds: dict[int, list[Round]] = field(default_factory=dict)  # the rounds of each active rank
    ends: dict[int, int] = field(default_factory=dict)  # how many rounds each active rank has made after it
    cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # coefficients alpha, beta and gamma of the longest paths up to here
    written: dict[int, dict[Block, Value]] = field(default_factory=dict)
    messages: list[DrawnMessage] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The title of the frame."""
        return say("on_each_rank") if self.local else say("step", step=self.step) if self.step else say("start")

    @property
    def short_title(self) -> str:
        """The title of the column of the frame in a matrix."""
        return say("local") if self.local else str(self.step) if self.step else say("start")


class DrawnBlock(NamedTuple):
    """A block on a rank: its value, and whether this frame wrote it, it is finished, and it is still needed."""

    value: Value
    new: bool
    finished: bool
    needed: bool


State = list[dict[Block, DrawnBlock]]  # the cells of each rank


@dataclass(frozen=True)
class Film:
    """All frames of one algorithm on `size` ranks, and the counts of the proof.

    Bytes in `counts` are in units of the whole vector, or of a block between neighbors.  `counts_traffic` has the bytes
    of the counts that ranks exchange first, if blocks differ in length.
    """

    algorithm: Algorithm
    size: int
    root: int
    segments: int
    hosts: Hosts
    counts: Counts
    counts_traffic: Counts | None
    frames: list[Frame]
    neighborhood: Neighborhood | None = None

    @cached_property
    def edges(self) -> Sequence[Neighbors | None]:
        """What each rank knows of the edges between neighbors."""
        return _edges(self.algorithm, self.size, self.hosts, self.neighborhood)

    @cached_property
    def count_sources(self) -> list[int]:
        """The ranks whose counts others learn first."""
        return sorted({source for rank in range(self.size) for source in self._counts_known_to(rank)})

    def _counts_known_to(self, rank: int) -> dict[int, int]:
        return self.algorithm.count_rows(rank, self.size, self.root, self.hosts, self.edges[rank])

    @cached_property
    def lines(self) -> dict[CodeType, list[dict[int, list[int]]]]:
        """The ranks that are active in each frame, by generator and by the line that yields their round.

        The first generator is that of the algorithm.  Others follow that it delegates to, with ``yield from``.
        """
        algorithm, edges = self.algorithm, self.edges
        found: dict[CodeType, list[dict[int, list[int]]]] = {algorithm.generator.__code__: [{} for _ in self.frames]}
        case = self.size, self.root, self.segments, self.hosts
        schedules = [algorithm.schedule(rank, *case, edges[rank]) for rank in range(self.size)]
        yields = [list(_lines(schedule)) for schedule in schedules]
        for index, frame in enumerate(self.frames):
            for rank, end in sorted(frame.ends.items()):
                for code, line in dict.fromkeys(chain(*yields[rank][end - len(frame.rounds[rank]) : end])):
                    here = found.setdefault(code, [{} for _ in self.frames])[index]
                    here.setdefault(line, []).append(rank)
        return found

    @property
    def hears(self) -> bool:
        """Whether the drawing shows the ranks that each rank has heard from, instead of blocks: for a barrier."""
        return self.algorithm.primitive.name == "barrier"

    @property
    def parts(self) -> int:
        """The number of blocks of the whole vector."""
        return self.algorithm.parts(self.size, self.segments, self.hosts)

    @cached_property
    def wanted(self) -> list[set[Block]]:
        """The blocks that each rank must have at the end."""
        if self.hears:
            return [set(range(self.size))] * self.size
        wants, case = self.algorithm.primitive.wanted_by, (self.size, self.root, self.parts)
        return [
            {*map(counts_of, self._counts_known_to(rank)), *wants(rank, *case, edges)}
            for rank, edges in enumerate(self.edges)
        ]

    @cached_property
    def waiting(self) -> list[set[int]]:
        """The ranks that wait in each frame with messages: they have no round in it, but in a later frame."""
        later: set[int] = set()
        backwards = []
        for frame in reversed(self.frames):
            backwards.append(set() if frame.local else later - frame.rounds.keys())
            later |= frame.rounds.keys()
        return backwards[::-1]

    def finished(self, rank: int, block: Block, held: dict[Block, Value]) -> bool:
        """Return whether a rank that holds these blocks has the final value of this block."""
        if self.hears:
            return len(held) == self.size
        if block not in self.wanted[rank] or held[block].origin != block:
            return False
        primitive = self.algorithm.primitive
        promised = primitive.contributors(rank, self.size)
        return not primitive.reduces or sorted(held[block].contributors) == list(promised)

    def held(self) -> Iterator[list[dict[Block, Value]]]:
        """Yield the values that each rank holds after each frame; the same dictionaries are updated for each frame."""
        held: list[dict[Block, Value]] = [{} for _ in range(self.size)]
        for frame in self.frames:
            for rank, written in frame.written.items():
                held[rank].update(written)
            yield held

    def states(self) -> list[State]:
        """Return the cells after each frame."""
        needed = self._needed()
        return [
            [
                {
                    block: DrawnBlock(
                        value,
                        index > 0 and block in self.frames[index].written.get(rank, ()),
                        self.finished(rank, block, blocks),
                        self.hears or block in needed[rank][index],
                    )
                    for block, value in blocks.items()
                }
                for rank, blocks in enumerate(held)
            ]
            for index, held in enumerate(self.held())
        ]

    def _needed(self) -> list[list[set[Block]]]:
        """Return for each rank after each frame the blocks whose values are read later, or are results."""
        needed = []
        for rank in range(self.size):
            live, backwards = set(self.wanted[rank]), []
            for frame in reversed(self.frames):
                backwards.append(set(live))
                for moves in reversed(frame.rounds.get(rank, [])):
                    live = _before(moves, live)
            needed.append(backwards[::-1])
        return needed


def _lines(schedule: Any) -> Iterator[list[tuple[CodeType, int]]]:
    """Yield for each round the lines that yield it: of the schedule, and of generators that it delegates to.

    Lines are counted from the first line of the source of their generator.
    """
    for _ in schedule:
        here, one = [], schedule
        while isgenerator(one) and one.gi_frame:
            here.append((one.gi_code, one.gi_frame.f_lineno - one.gi_code.co_firstlineno))
            one = one.gi_yieldfrom
        yield here


def _before(moves: Round, live: set[Block]) -> set[Block]:
    """Return the blocks that are needed before a round, given those that are needed after it."""
    replaced: set[Block] = set()
    read: set[Block] = set()
    for move in moves:
        match move:
            case Recv(_, blocks):
                replaced.update(blocks)
            case Send(_, blocks) | Reduce(_, blocks):
                read.update(blocks)
            case Copy(block, to):
                replaced.add(to)
                read.add(block)
            case Combine(block, into):
                read.update((block, into))
    return live - replaced | read


def film(
    algorithm: Algorithm,
    size: int,
    root: int = 0,
    segments: int = 1,
    hosts: Hosts = None,
    neighborhood: Neighborhood | None = None,
) -> Film:
    """Prove the algorithm and record its frames; raise ProofError if it is wrong."""
    seen: list[RankState] = []
    edges = _edges(algorithm, size, hosts, neighborhood)
    rows = [algorithm.count_rows(rank, size, root, hosts, edges[rank]) for rank in range(size)]
    counts_nbytes: dict[Block, int] = {counts_of(source): 8 * length for row in rows for source, length in row.items()}
    vector = 1 if neighborhood else algorithm.parts(size, segments, hosts)

    def counted(nbytes: Callable[[Block], float], watch: Callable[[RankState], object] | None = None) -> Counts:
        return prove(algorithm, size, root, segments, nbytes, hosts, watch, edges if neighborhood else None)

    counts = counted(lambda block: 0 if block in counts_nbytes else 1 / vector, seen.append)
    counts_traffic = counted(lambda block: counts_nbytes.get(block, 0)) if counts_nbytes else None
    frames = _frames(seen, size, algorithm)
    return Film(algorithm, size, root, segments, hosts, counts, counts_traffic, frames, neighborhood)


def _edges(algorithm: Algorithm, size: int, hosts: Hosts, neighborhood: Neighborhood | None) -> Sequence[Any]:
    return neighborhood.known_to(algorithm, hosts) if neighborhood else [None] * size


def _frames(seen: list[RankState], size: int, algorithm: Algorithm) -> list[Frame]:
    """Return frames in the order of steps; local moves come after the messages of the same step."""
    frames: dict[tuple[int, bool], Frame] = {}
    heard: list[set[int]] = [set() for _ in range(size)]
    made = [0] * size
    for number, one in enumerate(seen):
        made[one.rank] += number >= size
        if not one.moves and number >= size:
            continue
        local = any(isinstance(move, Copy | Combine) for move in one.moves)
        frame = frames.setdefault((one.step, local), Frame(one.step, local))
        frame.rounds.setdefault(one.rank, []).append(one.moves)
        frame.ends[one.rank] = made[one.rank]
        frame.cost = tuple(map(max, frame.cost, one.cost))
        written = frame.written.setdefault(one.rank, {})
        written.update(one.written)
        if algorithm.primitive.name == "barrier":
            written.update({rank: Value(rank, (rank,)) for rank in one.heard if rank not in heard[one.rank]})
            heard[one.rank].update(one.heard)
    ordered = [frames[key] for key in sorted(frames)]
    for before, frame in zip([ordered[0], *ordered], ordered):
        frame.messages = [] if frame.local else list(_messages(frame.rounds))
        frame.cost = tuple(map(max, before.cost, frame.cost))
    return ordered


def _messages(rounds: dict[int, list[Round]]) -> Iterator[DrawnMessage]:
    """Match sends with receives, first in, first out between two ranks, and yield the messages."""
    arrivals: dict[tuple[int, int], list[bool]] = {}
    for rank, (moves,) in rounds.items():
        for move in moves:
            if isinstance(move, Recv | Reduce):
                arrivals.setdefault((move.source, rank), []).append(isinstance(move, Reduce))
    for rank in sorted(rounds):
        for move in rounds[rank][0]:
            if isinstance(move, Send):
                combined = arrivals[rank, move.to].pop(0) and bool(move.blocks)
                yield DrawnMessage(rank, move.to, tuple(move.blocks), combined)
