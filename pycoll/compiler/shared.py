"""Programs for registered buffers: ranks of one host read and write the buffers of each other, without messages.

Such a program runs between two synchronizations of all ranks.  It combines contributions in the order of the schedule,
so the result has the same bits, but it does not follow the path of the messages.  Each rank computes a share of the
results directly from the contributions, and stores it at all ranks that want it.  A block that is only copied is copied
by the rank that wants it; in a gather, by the rank that has it; in a broadcast, by both.  In an all-to-all in place,
each pair of blocks is exchanged, one half by either rank.

No rank writes bytes that another rank reads or writes between the two synchronizations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ..schedule.moves import Block
from ..schedule.proof import outcomes
from ..schedule.registry import Algorithm, Hosts, Primitive
from ..schedule.symbols import Expression, Leaf
from .blocks import ProgramKey, key_of, layout, split
from .program import RECV, SCRATCH, SEND, Apply, CopyBytes, Divide, Layout, Program, Region, Step
from .storage import ALIGNMENT

INPUT, OUTPUT = range(2)  # the two buffers of each rank; one buffer if the rank works in place
PIECE = 1 << 18  # the most bytes that are combined and stored at a time, so that they stay in cache
_FIRST = SCRATCH + 1  # the number of the first buffer of a rank; the numbers before are those of the own buffers


def peer_buffer(rank: int, which: int) -> int:
    """Return the number of the input or output buffer of a rank."""
    return _FIRST + 2 * rank + which


@dataclass(frozen=True, eq=False)
class SharedProgram:
    """The program of one rank on registered buffers.

    `program` runs between the two synchronizations, `after` after the second one; neither has messages.  If ranks are
    on several hosts, there is only `program`, which has messages (`pycoll.compiler.pulled`), and no second
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


class _Move(NamedTuple):
    """A copy that one rank makes."""

    source: Region
    to: Region


class _Swap(NamedTuple):
    """An exchange of two blocks that one rank makes."""

    mine: Region
    theirs: Region


class _Share(NamedTuple):
    """A share of a block that one rank computes: the results, each with the ranks that want it."""

    block: Block
    start: int
    size: int
    results: tuple[tuple[Expression, tuple[int, ...]], ...]


_Work = list[_Move | _Swap | _Share]


def has_shared_programs(primitive: Primitive) -> bool:
    """Return whether there are such programs: each rank must know the lengths of the blocks that it accesses."""
    return primitive.name == "allgatherv" or not (primitive.varies or primitive.name == "barrier")


@lru_cache(maxsize=512)
def shared(key: ProgramKey, mean: bool = False) -> SharedProgram:
    """Return the program of one rank on registered buffers; with `mean`, it divides by the number of ranks."""
    plan = _Plan(key)
    works = [plan.work(rank) for rank in range(key.size)]
    return SharedProgram(*_Emitter(plan, mean).programs(works[key.rank]), plan.needed(works))


class _Plan:
    """The work of all ranks, in terms of the buffers of all ranks."""

    def __init__(self, key: ProgramKey) -> None:
        self.key, self.primitive = key, key.algorithm.primitive
        self.layouts = [_layout_of(key, rank) for rank in range(key.size)]

    def held(self, rank: int, block: Block) -> Region:
        """Return the place of a block in the input of a rank."""
        return self.layouts[rank].held[block]._replace(buffer=peer_buffer(rank, INPUT))

    def wanted(self, rank: int, block: Block) -> Region:
        """Return the place of a block in the output of a rank."""
        return self.layouts[rank].wanted[block]._replace(buffer=peer_buffer(rank, OUTPUT))

    def may_alias(self, rank: int) -> bool:
        """Return whether the input and the output of a rank may be the same; the answer is the same on all ranks."""
        return rank == self.key.root if self.primitive.rooted else self.key.in_place

    def work(self, rank: int) -> _Work:
        """Return the work of a rank."""
        if self.primitive.reduces:
            return list(self._shares(rank))
        return list(self._swaps(rank) if self.exchanges else self._moves(rank))

    @property
    def exchanges(self) -> bool:
        """Whether it is an all-to-all in place."""
        return self.key.in_place and self.primitive.takes_all and self.primitive.gives_all

    def _swaps(self, rank: int) -> Iterator[_Swap]:
        for peer in range(self.key.size):
            if peer != rank:
                mine, theirs = self.wanted(rank, (peer, rank)), self.wanted(peer, (rank, peer))
                middle = mine.size // 2 // ALIGNMENT * ALIGNMENT
                half = (0, middle) if rank < peer else (middle, mine.size)
                yield _Swap(_part(mine, *half), _part(theirs, *half))

    def _moves(self, rank: int) -> Iterator[_Move]:
        owners = {block: owner for owner, one in enumerate(self.layouts) for block in one.held}
        for getter, one in enumerate(self.layouts):
            for block, region in one.wanted.items():
                source, to = self.held(owners[block], block), self.wanted(getter, block)
                end = self._copied_by_getter(region.size)
                if rank == getter and end:
                    yield _Move(_part(source, 0, end), _part(to, 0, end))
                if rank == owners[block] and end < region.size:
                    yield _Move(_part(source, end, region.size), _part(to, end, region.size))

    def _copied_by_getter(self, size: int) -> int:
        """Return how many bytes of a block are copied by the rank that wants it; its owner copies the rest."""
        if self.primitive.name == "gather":
            return 0
        if self.primitive.name == "bcast":  # the root takes an equal share, since it wants nothing itself
            return size - size // self.key.size // ALIGNMENT * ALIGNMENT
        return size

    def _shares(self, rank: int) -> Iterator[_Share]:
        """Yield the shares that a rank computes: its own block, or an equal part of the vector."""
        results = _results(self.key.algorithm, self.key.size, self.key.root, self.key.segments, self.key.hosts)
        item, sizes = self.key.itemsize, {block: self.layouts[0].held[block].size for block in results}
        if self.primitive.takes_all:
            yield _Share(rank, 0, sizes[rank], results[rank])
            return
        ends = list(accumulate(split(sum(sizes.values()) // item, self.key.size), initial=0))
        first, last = ends[rank] * item, ends[rank + 1] * item
        for block, size in sizes.items():
            start = self.layouts[0].held[block].start
            low, high = max(first, start), min(last, start + size)
            if low < high:
                yield _Share(block, low - start, high - low, results[block])

    def needed(self, works: Sequence[_Work]) -> tuple[tuple[int, int], ...]:
        """Return the buffers that ranks access other than the rank that they belong to."""
        found = set[tuple[int, int]]()
        for rank, work in enumerate(works):
            for one in work:
                found |= {buffer for buffer in self._accesses(one) if buffer[0] != rank}
        return tuple(sorted(found))

    def _accesses(self, one: _Move | _Swap | _Share) -> Iterator[tuple[int, int]]:
        if isinstance(one, _Move | _Swap):
            for region in one:
                yield _owner(region)
        elif one.size:
            for expression, ranks in one.results:
                yield from ((leaf.rank, INPUT) for leaf in _leaves(expression))
                yield from ((rank, OUTPUT) for rank in ranks)


def _part(region: Region, start: int, end: int) -> Region:
    return Region(region.buffer, region.start + start, end - start)


def _layout_of(key: ProgramKey, rank: int) -> Layout:
    """Return the layout of a rank, as if its input and its output were different buffers."""
    return layout(key_of(key._replace(in_place=False), rank)._replace(in_place=False))


@lru_cache(maxsize=512)
def _results(
    algorithm: Algorithm, size: int, root: int, segments: int, hosts: Hosts
) -> dict[Block, tuple[tuple[Expression, tuple[int, ...]], ...]]:
    """Return the results for each block, and the ranks that want each of them."""
    found: dict[Block, dict[Expression, list[int]]] = {}
    for rank, outcome in enumerate(outcomes(algorithm, size, root, segments, hosts)):
        for block, expression in outcome.items():
            found.setdefault(block, {}).setdefault(expression, []).append(rank)
    return {
        block: tuple((expression, tuple(ranks)) for expression, ranks in results.items())
        for block, results in found.items()
    }


def _leaves(expression: Expression) -> Iterator[Leaf]:
    if isinstance(expression, Leaf):
        yield expression
    else:
        for side in expression:
            yield from _leaves(side)


class _Emitter:
    """Turns the work of one rank into steps on its own buffers and on those of the others."""

    def __init__(self, plan: _Plan, mean: bool) -> None:
        self.plan, self.key, self.mean = plan, plan.key, mean
        self.steps: list[Step] = []
        self.after: list[Step] = []
        self.used = self.scratch = 0  # bytes of scratch: now, and the most
        # in a reduce-scatter in place, results must not replace blocks that other ranks read
        self.late = self.key.in_place and plan.primitive.takes_all and plan.primitive.reduces

    def programs(self, work: _Work) -> tuple[Program, Program]:
        """Return the programs before and after the second synchronization."""
        piece = max(1, PIECE // self.key.itemsize) * self.key.itemsize
        for one in work:
            if isinstance(one, _Move):
                self.move(one)
            elif isinstance(one, _Swap):
                for mine, theirs in zip(one.mine.cut(piece), one.theirs.cut(piece)):
                    self.swap(mine, theirs)
            else:
                for start in range(0, one.size, piece):
                    self.compute(one._replace(start=one.start + start, size=min(piece, one.size - start)))
        name = str(self.key.algorithm)
        return Program(self.steps, [], self.scratch, name), Program(self.after, [], self.scratch, name)

    def move(self, one: _Move) -> None:
        """Copy a block, unless it is in its place already."""
        if not self.is_done(*one):
            self.copy(one.source, one.to)

    def swap(self, mine: Region, theirs: Region) -> None:
        """Exchange a piece of two blocks."""
        before, aside = self.used, self.slot(mine.size)
        for source, to in [(mine, aside), (theirs, mine), (aside, theirs)]:
            self.copy(source, to)
        self.used = before

    def compute(self, share: _Share) -> None:
        """Compute the results for a piece of a block, and store them."""
        before, values = self.used, _Values(self.plan, share, self.slot)
        several = len(share.results) > 1 and self.key.in_place
        stores: list[tuple[Region, Region]] = []
        for expression, ranks in share.results:
            places = [values.place(rank) for rank in sorted(ranks, key=lambda rank: rank != self.key.rank)]
            if self.late:
                places = [self.until_later(place, values.contribution(self.key.rank)) for place in places]
            result = values.compute(expression, [] if several else places)
            if self.mean:
                values.steps.append(Divide(result))
            stores += [(result, place) for place in places]
        self.steps += [_with_regions(step, self.own) for step in values.steps]
        # first the contributions that are results themselves, before other results replace them
        for result, place in sorted(stores, key=lambda pair: pair[0].buffer == SCRATCH):
            if not self.is_done(result, place):
                self.copy(result, place)
        self.used = before

    def is_done(self, source: Region, to: Region) -> bool:
        """Return whether a block of a rank that works in place is wanted where it is."""
        return self.key.in_place and _owner(source)[0] == _owner(to)[0] == self.key.rank

    def until_later(self, to: Region, contribution: Region) -> Region:
        """Return the contribution of this rank, which no other reads, and copy it to `to` in the end."""
        source, to = self.own(contribution), self.own(to)
        if source != to:
            self.after.append(CopyBytes(source, to))
        return contribution

    def slot(self, size: int) -> Region:
        """Return scratch that is not in use."""
        start, self.used = self.used, self.used + size + -size % ALIGNMENT
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
        """Copy a region, unless it is in its place already."""
        if source != to and source.size:
            self.steps.append(CopyBytes(self.own(source), self.own(to)))


class _Values:
    """The computation of the results for a piece of a block."""

    def __init__(self, plan: _Plan, share: _Share, slot: Callable[[int], Region]) -> None:
        self.plan, self.share, self.slot = plan, share, slot
        self.steps: list[Apply | Divide] = []
        self.known: dict[Expression, Region] = {}

    def place(self, rank: int) -> Region:
        """Return the place of the piece in the output of a rank."""
        return self._piece(self.plan.wanted(rank, self.share.block))

    def contribution(self, rank: int) -> Region:
        """Return the place of the piece in the input of a rank."""
        return self._piece(self.plan.held(rank, self.share.block))

    def _piece(self, block: Region) -> Region:
        return _part(block, self.share.start, self.share.start + self.share.size)

    def compute(self, expression: Expression, places: Sequence[Region]) -> Region:
        """Compute a result in one of these places, or else in scratch; return where it is."""
        for into in places:
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
        rank, which = _owner(into)
        if which == OUTPUT and not self.plan.may_alias(rank):
            return True
        replaced = False
        for step in steps:
            if replaced and any(_owner(region) == (rank, INPUT) for region in step):
                return False
            replaced = replaced or step[-1] == into
        return True


def _owner(region: Region) -> tuple[int, int]:
    """Return the rank that a buffer belongs to, and whether it is its input or its output."""
    return divmod(region.buffer - _FIRST, 2)


def _with_regions(step: Apply | Divide, change: Callable[[Region], Region]) -> Step:
    return type(step)(*map(change, step))
