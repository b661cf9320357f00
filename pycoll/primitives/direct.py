"""Direct schedules: every block goes straight from the ranks that have it to the ranks that need it.

Ranks of one host run them on registered buffers, whichever algorithm was chosen.  `direct` returns the direct schedule
of an algorithm.  It combines in the same order, so it gives the same bits.  `pycoll.compiler.registered` makes programs
without messages from it.  On command lines, its name is that of the algorithm with a suffix: ``ring@registered``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple

from ..schedule import registry
from ..schedule.cuts import whole
from ..schedule.hosts import Hosts
from ..schedule.moves import AFTER, Block, Combine, Copy, Move, Recv, Schedule, Send
from ..schedule.proof import outcomes
from ..schedule.registry import PRIMITIVES, Algorithm
from ..schedule.symbols import Expression, Leaf, contributors
from . import alltoall

SUFFIX = "@registered"
AND_SUFFIX = f"with {SUFFIX} appended, its schedule for registered buffers"  # for help texts


def find_schedule(primitive: str, name: str) -> Algorithm:
    """Return an algorithm, or its direct schedule if the name ends in `SUFFIX`; raise ValueError if there is none."""
    if isinstance(name, str) and name.endswith(SUFFIX):
        return direct(registry.find_schedule(primitive, name.removesuffix(SUFFIX)))
    return registry.find_schedule(primitive, name)


@lru_cache(maxsize=512)
def direct(algorithm: Algorithm) -> Algorithm:
    """Return the direct schedule that gives the results of an algorithm; raise ValueError if there is none.

    A vector that is reduced is cut into parts that lie both in one block of the algorithm and in the share of one rank.
    """
    primitive, name = algorithm.primitive, algorithm.name + SUFFIX
    if primitive.name == "barrier" or primitive.near:
        raise ValueError(f"{primitive.name} has no schedule for registered buffers")
    root = ("root",) if primitive.rooted else ()
    if not primitive.reduces:
        generator = _MOVES[primitive.name.removesuffix("v").removesuffix("w")]
        return Algorithm(primitive, name, generator, whole, True, ("rank", "size", *root))
    chosen = tuple(one for one in ("segments", "hosts") if one in algorithm.parameters)

    def cut(size: int, segments: int, hosts: Hosts) -> int:
        return math.lcm(algorithm.cut(size, segments, hosts), size)

    generator = _of(algorithm, _REDUCTIONS[primitive.name])
    return Algorithm(
        primitive, name, generator, cut, algorithm.ordered, ("rank", "size", *root, *chosen), levels=algorithm.levels
    )


def bcast(rank: int, size: int, root: int) -> Schedule:
    """All ranks read the vector of the root at the same time.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)*Z
    Received: Z
    Cost: (p-1)*alpha + (p-1)*Z*beta
    Source: the definition of MPI_Bcast in the MPI standard.
    """
    return _straight("bcast", rank, size, root)


def scatter(rank: int, size: int, root: int) -> Schedule:
    """All ranks read their blocks in the buffer of the root at the same time.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: Z/p
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: the definition of MPI_Scatter in the MPI standard.
    """
    return _straight("scatter", rank, size, root)


def gather(rank: int, size: int, root: int) -> Schedule:
    """All ranks write their blocks to the buffer of the root at the same time.

    Rounds: 1
    Messages: 1
    Sent: Z/p
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: the definition of MPI_Gather in the MPI standard.
    """
    return _straight("gather", rank, size, root)


def allgather(rank: int, size: int) -> Schedule:
    """All ranks read the blocks of all other ranks at the same time.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta
    Source: the definition of MPI_Allgather in the MPI standard.
    """
    return _straight("allgather", rank, size, 0)


def reduce(algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Each rank combines the contributions of all ranks to its share of the vector, and stores the result at the root.

    Rounds: 2
    Messages: p
    Sent: Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Source: as `allreduce`.
    """
    return _reduction(algorithm, rank, size, root, segments, hosts)


def allreduce(algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Each rank combines the contributions of all ranks to its share of the vector, and stores the result everywhere.

    Rounds: 2
    Messages: 2*(p-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Source: Cowan et al., "MSCCLang: Microsoft collective communication language", ASPLOS 2023, the "all pairs"
        all-reduce.
    """
    return _reduction(algorithm, rank, size, root, segments, hosts)


def reduce_scatter(algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Each rank combines the contributions of all ranks to its block.

    Rounds: 1
    Messages: p-1
    Sent: (p-1)/p*Z
    Received: (p-1)/p*Z
    Cost: (p-1)*alpha + (p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Source: as `allreduce`, the first half.
    """
    return _reduction(algorithm, rank, size, root, segments, hosts)


def scan(algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Each rank computes the results of all ranks for its share of the vector, and stores them where they are wanted.

    Rounds: 2
    Messages: 2*(p-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: at most 2*(p-1)*alpha + 2*(p-1)/p*Z*beta + lg(p)*Z*gamma
    Source: as `allreduce`.
    """
    return _reduction(algorithm, rank, size, root, segments, hosts)


_MOVES: dict[str, Callable[..., Schedule]] = {
    "bcast": bcast,
    "scatter": scatter,
    "gather": gather,
    "allgather": allgather,
    "alltoall": alltoall.naive,
}
_REDUCTIONS: dict[str, Callable[..., Schedule]] = {
    "reduce": reduce,
    "allreduce": allreduce,
    "reduce_scatter": reduce_scatter,
    "scan": scan,
    "exscan": scan,
}


def _of(algorithm: Algorithm, generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
    @wraps(generator)
    def schedule(rank: int, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None) -> Schedule:
        return generator(algorithm, rank, size, root, segments, hosts)

    return schedule


def _straight(primitive: str, rank: int, size: int, root: int) -> Schedule:
    """Generate one round, in which each block goes from the rank that holds it to all others that want it."""
    parts = 1 if PRIMITIVES[primitive].cuts else size
    held, wanted = (
        [indices(each, size, root, parts) for each in range(size)]
        for indices in (PRIMITIVES[primitive].holds, PRIMITIVES[primitive].wants)
    )
    yield from _exchange(rank, size, lambda source, to: [block for block in held[source] if block in wanted[to]])


def _exchange(rank: int, size: int, between: Callable[[int, int], list[Block]]) -> Schedule:
    """Generate one round with all messages, beginning with the next rank, so that ranks access different ones."""
    others = [(rank + step) % size for step in range(1, size)]
    moves: list[Move] = [Recv(source, blocks) for source in others if (blocks := between(source, rank))]
    moves += [Send(to, blocks) for to in others if (blocks := between(rank, to))]
    if moves:
        yield tuple(moves)


def _reduction(algorithm: Algorithm, rank: int, size: int, root: int, segments: int, hosts: Hosts) -> Schedule:
    """Generate a round for the contributions, the combinations in the own share, and a round for the results."""
    if size == 1:
        return
    shares = _Shares(size, results_of(algorithm, size, root, segments, hosts))
    yield tuple(Copy(part, contribution(rank, part)) for part in range(shares.parts))
    yield from _exchange(rank, size, shares.contributions)
    for part in shares.of(rank):
        yield from shares.combinations(part, rank)
    yield from _exchange(rank, size, shares.deliveries)
    others = [shares.deliveries(source, rank) for source in range(size) if source != rank]
    if copies := [Copy(block, part_of(block)) for blocks in others for block in blocks if block != part_of(block)]:
        yield tuple(copies)


def contribution(rank: int, part: int) -> Block:
    """Name the contribution of a rank to a part of the vector."""
    return (rank, part)


def is_contribution(block: Block) -> bool:
    """Return whether this is the name of a contribution."""
    return isinstance(block, tuple) and len(block) == 2


def part_of(block: Any) -> int:
    """Return the part of the vector that a contribution or a result belongs to."""
    return int(block[-1] if isinstance(block, tuple) else block)


class Results(NamedTuple):
    """The results for one block of an algorithm, by the ranks that want them, and the ranks that contribute."""

    wanted: dict[int, Expression]
    contributors: frozenset[int]
    same: bool  # whether all ranks want the same result


@lru_cache(maxsize=512)
def results_of(algorithm: Algorithm, size: int, root: int, segments: int, hosts: Hosts) -> list[Results]:
    """Return the results of an algorithm for each of its blocks."""
    ends, found = outcomes(algorithm, size, root, segments, hosts), []
    for block in range(algorithm.parts(size, segments, hosts)):
        wanted = {rank: end[block] for rank, end in enumerate(ends) if block in end}
        different = set(wanted.values())
        taking_part = frozenset(rank for expression in different for rank in contributors(expression))
        found.append(Results(wanted, taking_part, len(different) == 1))
    return found


class _Shares:
    """The parts of the vector that each rank combines."""

    def __init__(self, size: int, blocks: list[Results]) -> None:
        self.size, self.blocks = size, blocks
        self.parts = math.lcm(len(blocks), size)

    def of(self, rank: int) -> range:
        """Return the parts that a rank combines."""
        return range(rank * self.parts // self.size, (rank + 1) * self.parts // self.size)

    def results(self, part: int) -> Results:
        """Return the results for a part."""
        return self.blocks[part * len(self.blocks) // self.parts]

    def contributions(self, source: int, to: int) -> list[Block]:
        """Return the contributions of one rank to the share of another."""
        return [contribution(source, part) for part in self.of(to) if source in self.results(part).contributors]

    def deliveries(self, source: int, to: int) -> list[Block]:
        """Return the results in the share of one rank that another one wants."""
        return [self.name(part, to) for part in self.of(source) if to in self.results(part).wanted]

    def name(self, part: int, rank: int) -> Block:
        """Name the result for a part that a rank wants."""
        return part if self.results(part).same else ("result", rank, part)

    def combinations(self, part: int, owner: int) -> Schedule:
        """Generate the combinations for a part in the share of `owner`, and copy each result to its name."""
        known: dict[Expression, Block] = {}
        results = self.results(part)
        for rank, expression in results.wanted.items():
            if expression not in known or not results.same:
                yield from _combine(expression, part, known, results.same)
                yield (Copy(known[expression], part if rank == owner else self.name(part, rank)),)


def _combine(expression: Expression, part: int, known: dict[Expression, Block], once: bool) -> Schedule:
    """Generate the combinations of an expression; `known` gets the names of all its values.

    With `once`, no other expression contains them, so that a result replaces its left operand.
    """
    if expression in known:
        return
    if isinstance(expression, Leaf):
        known[expression] = contribution(expression.rank, part)
        return
    for side in expression:
        yield from _combine(side, part, known, once)
    into = known[expression.left]
    if not once:
        into = ("sum", len(known), part)
        yield (Copy(known[expression.left], into),)
    known[expression] = into
    yield (Combine(known[expression.right], into, AFTER),)
