"""Programs for registered buffers: ranks of one host read and write the buffers of each other, without messages.

Such a program runs between two synchronizations of all ranks.  It is made from the direct schedule of the algorithm
(`pycoll.primitives.direct`), which combines in the same order.  Each message of the schedule becomes an access to the
buffer of another rank.  Contributions are read by the rank that combines them, and results are stored by it.  A block
that is only copied is copied by the rank that receives it; in a gather, by the rank that sends it; in a broadcast, by
both.  In an all-to-all in place, each pair of blocks is exchanged, one half by either rank.  In a reduce-scatter in
place, results replace contributions: so each rank combines a part of every block or, if blocks are short or of
different sizes, copies its result after the second synchronization.

No rank writes bytes that another rank reads or writes between the two synchronizations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..schedule.registry import Primitive
from ..schedule.symbols import Expression, Leaf, contributors
from .program import (
    INPUT,
    OUTPUT,
    RECV,
    SCRATCH,
    SEND,
    Apply,
    CopyBytes,
    Divide,
    Program,
    Region,
    Step,
    peer_buffer,
    peer_of,
)
from .program_key import ProgramKey
from .registered_work import BlockCopy, Share, Swap, Work, WorkDivision
from .storage import aligned

PIECE = 1 << 18  # the most bytes that are combined and stored at a time, so that they stay in cache


@dataclass(frozen=True, eq=False)
class RegisteredProgram:
    """The program of one rank on registered buffers.

    `program` runs between the two synchronizations, `after` after the second one; neither has messages.  If ranks are
    on several hosts, there is only `program`, which has messages (`pycoll.compiler.host_gets`), and no second
    synchronization.  `needed` lists the buffers that must be registered, each as (rank, INPUT or OUTPUT), with ranks
    counted on their host; it is the same on all ranks of a host.
    """

    program: Program
    after: Program
    needed: tuple[tuple[int, int], ...]

    @property
    def has_messages(self) -> bool:
        """Whether its messages say which blocks may be read, and when they have been."""
        return bool(self.program.messages)


def has_registered_programs(primitive: Primitive) -> bool:
    """Return whether there are such programs: each rank must know the lengths of the blocks that it accesses."""
    return primitive.lengths_known and primitive.name != "barrier"


@lru_cache(maxsize=512)
def registered_program(key: ProgramKey, mean: bool = False) -> RegisteredProgram:
    """Return the program of one rank on registered buffers; with `mean`, it divides by the number of ranks."""
    division = WorkDivision(key)
    works = [division.work(rank) for rank in range(key.size)]
    return RegisteredProgram(*_Emitter(division, mean).programs(works[key.rank]), _needed(works))


def _needed(works: Sequence[Work]) -> tuple[tuple[int, int], ...]:
    """Return the buffers that ranks access other than the rank that they belong to."""
    found = {
        buffer for rank, work in enumerate(works) for one in work for buffer in _accesses(one) if buffer[0] != rank
    }
    return tuple(sorted(found))


def _accesses(one: BlockCopy | Swap | Share) -> Iterator[tuple[int, int]]:
    if isinstance(one, BlockCopy | Swap):
        for region in one:
            yield peer_of(region.buffer)
    elif one.size:
        for expression, ranks in one.results:
            yield from ((rank, INPUT) for rank in contributors(expression))
            yield from ((rank, OUTPUT) for rank in ranks)


class _Emitter:
    """Turns the work of one rank into steps on its own buffers and on those of the others."""

    def __init__(self, division: WorkDivision, mean: bool) -> None:
        self.division, self.key, self.mean = division, division.key, mean
        self.steps: list[Step] = []
        self.after: list[Step] = []
        self.used = self.scratch = 0  # bytes of scratch: now, and the most
        # results must not replace contributions that other ranks read
        self.late = division.replaces and not division.spreads

    def programs(self, work: Work) -> tuple[Program, Program]:
        """Return the programs before and after the second synchronization."""
        piece = max(1, PIECE // self.key.itemsize) * self.key.itemsize
        for one in work:
            if isinstance(one, BlockCopy):
                self.move(one)
            elif isinstance(one, Swap):
                for mine, theirs in zip(one.mine.cut(piece), one.theirs.cut(piece)):
                    self.swap(mine, theirs)
            else:
                for start in range(0, one.size, piece):
                    self.compute(one._replace(start=one.start + start, size=min(piece, one.size - start)))
        name = str(self.key.algorithm)
        return Program(self.steps, [], self.scratch, name), Program(self.after, [], self.scratch, name)

    def move(self, one: BlockCopy) -> None:
        """Copy a block, unless it is there already."""
        if not self.is_done(*one):
            self.copy(one.source, one.to)

    def swap(self, mine: Region, theirs: Region) -> None:
        """Exchange a piece of two blocks."""
        before, aside = self.used, self.slot(mine.size)
        for source, to in [(mine, aside), (theirs, mine), (aside, theirs)]:
            self.copy(source, to)
        self.used = before

    def compute(self, share: Share) -> None:
        """Compute the results for a piece of a block, and store them."""
        before, values = self.used, _Values(self.division, share, self.slot)
        several = len(share.results) > 1 and self.key.in_place
        stores: list[tuple[Region, Region]] = []
        for expression, ranks in share.results:
            outputs = [values.output(rank) for rank in sorted(ranks, key=lambda rank: rank != self.key.rank)]
            if self.late:
                outputs = [self.until_later(output, values.contribution(self.key.rank)) for output in outputs]
            result = values.compute(expression, [] if several else outputs)
            if self.mean:
                values.steps.append(Divide(result))
            stores += [(result, output) for output in outputs]
        self.steps += [_with_regions(step, self.own) for step in values.steps]
        # first the contributions that are results themselves, before other results replace them
        for result, output in sorted(stores, key=lambda pair: pair[0].buffer == SCRATCH):
            if not self.is_done(result, output):
                self.copy(result, output)
        self.used = before

    def is_done(self, source: Region, to: Region) -> bool:
        """Return whether a block of a rank that works in place is wanted where it is."""
        return self.key.in_place and peer_of(source.buffer)[0] == peer_of(to.buffer)[0] == self.key.rank

    def until_later(self, to: Region, contribution: Region) -> Region:
        """Return the contribution of this rank, which no other reads, and copy it to `to` in the end."""
        source, to = self.own(contribution), self.own(to)
        if source != to:
            self.after.append(CopyBytes(source, to))
        return contribution

    def slot(self, size: int) -> Region:
        """Return scratch that is not in use."""
        start, self.used = self.used, self.used + aligned(size)
        self.scratch = max(self.scratch, self.used)
        return Region(SCRATCH, start, size)

    def own(self, region: Region) -> Region:
        """Return the region in terms of the own buffers, if it is in one of them."""
        if region.buffer == peer_buffer(self.key.rank, OUTPUT):
            return region._replace(buffer=RECV)
        if region.buffer == peer_buffer(self.key.rank, INPUT):
            return region._replace(buffer=RECV if self.key.in_place else SEND)
        return region

    def copy(self, source: Region, to: Region) -> None:
        """Copy a region, unless it is there already."""
        if source != to and source.size:
            self.steps.append(CopyBytes(self.own(source), self.own(to)))


class _Values:
    """The computation of the results for a piece of a block."""

    def __init__(self, division: WorkDivision, share: Share, slot: Callable[[int], Region]) -> None:
        self.division, self.share, self.slot = division, share, slot
        self.steps: list[Apply | Divide] = []
        self.known: dict[Expression, Region] = {}

    def output(self, rank: int) -> Region:
        """Return the region of the piece in the output of a rank."""
        return self._piece(self.division.wanted(rank, self.share.block))

    def contribution(self, rank: int) -> Region:
        """Return the region of the piece in the input of a rank."""
        return self._piece(self.division.held(rank, self.share.block))

    def _piece(self, block: Region) -> Region:
        return block.part(self.share.start, self.share.start + self.share.size)

    def compute(self, expression: Expression, outputs: Sequence[Region]) -> Region:
        """Compute a result in one of these outputs, or else in scratch; return where it is."""
        for into in outputs:
            steps: list[Apply | Divide] = []
            result = self._evaluate(expression, into, steps)
            if self._safe(steps, into):
                break
        else:
            steps = []
            result = self._evaluate(expression, self.slot(self.share.size), steps)
        self.steps += steps
        self.known[expression] = result
        return result

    def _evaluate(self, expression: Expression, into: Region, steps: list[Apply | Divide]) -> Region:
        if expression in self.known:
            return self.known[expression]
        if isinstance(expression, Leaf):
            return self.contribution(expression.rank)
        left = self._evaluate(expression.left, into, steps)
        right = self._evaluate(expression.right, self.slot(self.share.size) if left == into else into, steps)
        steps.append(Apply(left, right, into))
        return into

    def _safe(self, steps: Sequence[Apply | Divide], into: Region) -> bool:
        """Return whether no step reads a contribution that an earlier step has replaced with a result in `into`."""
        rank, which = peer_of(into.buffer)
        if which == OUTPUT and not self.division.may_alias(rank):
            return True
        if not into.overlaps(self.contribution(rank)._replace(buffer=into.buffer)):
            return True
        replaced = False
        for step in steps:
            if replaced and any(peer_of(region.buffer) == (rank, INPUT) for region in step):
                return False
            replaced = replaced or step[-1] == into
        return True


def _with_regions(step: Apply | Divide, change: Callable[[Region], Region]) -> Step:
    return type(step)(*map(change, step))
