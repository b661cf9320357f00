"""The work of each rank in programs for registered buffers, as read from the direct schedule of an algorithm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from math import lcm
from typing import Any, NamedTuple

from ..primitives.direct import direct, is_contribution, part_of
from ..schedule.hosts import Hosts
from ..schedule.moves import AFTER, Block, Combine, Copy, Recv, Round, Send
from ..schedule.registry import Algorithm
from ..schedule.symbols import Combination, Expression, Leaf
from .layout import layout, split
from .program import INPUT, OUTPUT, Layout, Region, peer_buffer
from .program_key import ProgramKey, key_of
from .storage import ALIGNMENT

Results = tuple[tuple[Expression, tuple[int, ...]], ...]  # each with the ranks that want it


class BlockCopy(NamedTuple):
    """A copy that one rank makes."""

    source: Region
    to: Region


class Swap(NamedTuple):
    """An exchange of two blocks that one rank makes."""

    mine: Region
    theirs: Region


class Share(NamedTuple):
    """What one rank computes for `size` bytes, which begin `start` bytes after the beginning of a block."""

    block: Block
    start: int
    size: int
    results: Results


Work = list[BlockCopy | Swap | Share]
SPREAD = 1 << 13  # bytes; see `WorkDivision.spreads`


class WorkDivision:
    """The work of all ranks, in terms of the buffers of all ranks."""

    def __init__(self, key: ProgramKey) -> None:
        self.key, self.primitive, self.direct = key, key.algorithm.primitive, direct(key.algorithm)
        if not self.primitive.reduces:
            key = key._replace(algorithm=self.direct)
        self._layouts = [_layout_of(key, rank) for rank in range(key.size)]
        given = key.size, key.segments, key.hosts
        self._pieces = self.direct.parts(*given) // key.algorithm.parts(*given)  # of each block of the layouts

    def held(self, rank: int, block: Block) -> Region:
        """Return the region of a block in the input of a rank."""
        return self._region(self._layouts[rank].held, block)._replace(buffer=peer_buffer(rank, INPUT))

    def wanted(self, rank: int, block: Block) -> Region:
        """Return the region of a block in the output of a rank."""
        return self._region(self._layouts[rank].wanted, block)._replace(buffer=peer_buffer(rank, OUTPUT))

    def _region(self, regions: dict[Block, Region], block: Any) -> Region:
        if self._pieces == 1:
            return regions[block]
        item, (whole, number) = self.key.itemsize, divmod(block, self._pieces)
        ends = [0, *accumulate(split(regions[whole].size // item, self._pieces))]
        return regions[whole].part(ends[number] * item, ends[number + 1] * item)

    def may_alias(self, rank: int) -> bool:
        """Return whether the input and the output of a rank may be the same; the answer is the same on all ranks."""
        return rank == self.key.root if self.primitive.rooted else self.key.in_place

    @cached_property
    def replaces(self) -> bool:
        """Whether results replace contributions to other blocks, as in a reduce-scatter in place."""
        return self.key.in_place and self.primitive.takes_all and self.primitive.reduces

    @cached_property
    def spreads(self) -> bool:
        """Whether each rank combines a part of every block, so that no rank replaces what another rank reads.

        If blocks are too short for so many combinations, or of different sizes, each rank combines its own block, and
        copies it there when all have read what is there.
        """
        sizes = {region.size for region in self._layouts[0].held.values()}
        return self.replaces and len(sizes) == 1 and min(sizes) >= SPREAD * (self.key.size - 1) ** 2

    def work(self, rank: int) -> Work:
        """Return the work of a rank."""
        key = self.key
        if self.spreads:
            return list(self._parts_of_shares(rank))
        if self.primitive.reduces:
            return [*self._shares[rank]]
        messages = [move for moves in self._rounds(rank) for move in moves if isinstance(move, Send | Recv)]
        if key.in_place and self.primitive.takes_all and self.primitive.gives_all:
            return list(self._swaps(rank, messages))
        return list(self._moves(rank, messages))

    def _rounds(self, rank: int) -> list[Round]:
        key = self.key
        return list(self.direct.schedule(rank, key.size, key.root, key.segments, key.hosts))

    def _swaps(self, rank: int, messages: Sequence[Send | Recv]) -> Iterator[Swap]:
        for move in messages:
            if isinstance(move, Recv):
                mine, theirs = self.wanted(rank, (move.source, rank)), self.wanted(move.source, (rank, move.source))
                middle = mine.size // 2 // ALIGNMENT * ALIGNMENT
                half = (0, middle) if rank < move.source else (middle, mine.size)
                yield Swap(mine.part(*half), theirs.part(*half))

    def _moves(self, rank: int, messages: Sequence[Send | Recv]) -> Iterator[BlockCopy]:
        for block in self._layouts[rank].wanted:
            if block in self._layouts[rank].held:
                yield BlockCopy(self.held(rank, block), self.wanted(rank, block))
        for move in messages:
            sender, receiver = (rank, move.to) if isinstance(move, Send) else (move.source, rank)
            for block in move.blocks:
                source, to = self.held(sender, block), self.wanted(receiver, block)
                middle = self._copied_by_receiver(to.size)
                mine = (0, middle) if rank == receiver else (middle, to.size)
                if mine[0] < mine[1]:
                    yield BlockCopy(source.part(*mine), to.part(*mine))

    def _copied_by_receiver(self, size: int) -> int:
        """Return how many bytes of a block are copied by the rank that receives it; its sender copies the rest."""
        if self.primitive.name == "gather":
            return 0
        if self.primitive.name == "bcast":  # the root takes an equal share, since it receives nothing itself
            return size - size // self.key.size // ALIGNMENT * ALIGNMENT
        return size

    def _parts_of_shares(self, rank: int) -> Iterator[Share]:
        """Yield part number `rank` of every block.

        In place, the result of a block replaces the same part of a contribution to block 0, so block 0 comes first.
        """
        size, unit = self.key.size, lcm(ALIGNMENT, self.key.itemsize)
        for share in chain.from_iterable(self._shares):
            start, end = (share.size * one // size // unit * unit for one in (rank, rank + 1))
            yield share._replace(start=start, size=(share.size if rank == size - 1 else end) - start)

    @cached_property
    def _shares(self) -> list[list[Share]]:
        return [self._shares_of(rank) for rank in range(self.key.size)]

    def _shares_of(self, rank: int) -> list[Share]:
        """Return what a rank computes; consecutive blocks with the same order of combination are one share."""
        key, shares = self.key, list[Share]()
        for block, results in _results(self.direct, key.size, key.root, key.segments, key.hosts)[rank].items():
            size = self.held(rank, block).size
            if shares and shares[-1].results == results:
                shares[-1] = shares[-1]._replace(size=shares[-1].size + size)
            else:
                shares.append(Share(block, 0, size, results))
        return shares


@lru_cache(maxsize=16)
def _results(algorithm: Algorithm, size: int, root: int, segments: int, hosts: Hosts) -> list[dict[int, Results]]:
    """Return the results that each rank computes in a direct schedule for each block, and the ranks that want them."""
    return [_results_of(algorithm, rank, size, root, segments, hosts) for rank in range(size)]


def _results_of(
    algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts
) -> dict[int, Results]:
    where = rank, size, root, algorithm.parts(size, segments, hosts)
    values: dict[Any, Any] = {block: Leaf(rank, 0) for block in algorithm.primitive.holds(*where)}
    results: dict[int, dict[Expression, list[int]]] = defaultdict(lambda: defaultdict(list))
    for move in chain.from_iterable(algorithm.schedule(rank, size, root, segments, hosts)):
        match move:
            case Copy(block, to):
                values[to] = values[block]
            case Combine(block, into, order):
                operands = (into, block) if order == AFTER else (block, into)
                values[into] = Combination(*(values[one] for one in operands))
            case Recv(source, blocks):  # contributions, or results that others have computed
                values |= {block: Leaf(source, 0) if is_contribution(block) else None for block in blocks}
            case Send(to, blocks):
                for block in blocks:
                    if not is_contribution(block):
                        results[part_of(block)][values[block]].append(to)
    for block in algorithm.primitive.wants(*where):
        if values[block] is not None:
            results[part_of(block)][values[block]].append(rank)
    found = {}
    for part, wanted in sorted(results.items()):
        pairs = ((expression, tuple(sorted(ranks))) for expression, ranks in wanted.items())
        found[part] = tuple(sorted(pairs, key=lambda pair: pair[1]))
    return found


def _layout_of(key: ProgramKey, rank: int) -> Layout:
    """Return the layout of a rank, as if its input and its output were different buffers."""
    return layout(key_of(key._replace(in_place=False), rank)._replace(in_place=False))
