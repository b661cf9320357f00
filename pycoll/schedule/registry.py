"""The primitives, and the registry of their algorithms."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from .moves import Block, Move, Schedule

# What each primitive starts from and ends with: {block: its place in the send (receive) buffer}, where a
# place is the index of a part of the vector, or of a rank's block.

Places = dict[Block, int]


def _vector(rank: int, size: int, root: int, parts: int) -> Places:
    return {block: block for block in range(parts)}


def _own(rank: int, size: int, root: int, parts: int) -> Places:
    return {rank: 0}


def _own_in_place(rank: int, size: int, root: int, parts: int) -> Places:
    return {rank: rank}


def _nothing(rank: int, size: int, root: int, parts: int) -> Places:
    return {}


def _outgoing(rank: int, size: int, root: int, parts: int) -> Places:
    return {(rank, to): to for to in range(size)}


def _incoming(rank: int, size: int, root: int, parts: int) -> Places:
    return {(source, rank): source for source in range(size)}


def _at_root(places: Callable[..., Places]) -> Callable[..., Places]:
    return lambda rank, size, root, parts: places(rank, size, root, parts) if rank == root else {}


def _but_first(rank: int, size: int, root: int, parts: int) -> Places:
    return _vector(rank, size, root, parts) if rank > 0 else {}


# Whose contributions a rank's result of a reduction combines, and who knows the counts that others need.


def _everyone(rank: int, size: int) -> range:
    return range(size)


def _up_to_me(rank: int, size: int) -> range:
    return range(rank + 1)


def _before_me(rank: int, size: int) -> range:
    return range(rank)


def _the_root(size: int, root: int) -> Sequence[int]:
    return [root]


def _all_ranks(size: int, root: int) -> Sequence[int]:
    return range(size)


def counts_of(rank: int) -> tuple[str, int]:
    """The block with the counts that `rank` was given, 8 bytes for each rank: see `algorithm(needs_counts=True)`."""
    return ("counts", rank)


@dataclass(frozen=True, eq=False)
class Primitive:
    """A collective: which blocks a rank holds before, which it wants after, and where they lie."""

    name: str
    holds: Callable[..., Places]
    wants: Callable[..., Places]
    rooted: bool = False
    reduces: bool = False
    cuts: bool = False  # the vector is cut into as many parts as the algorithm asks for
    takes_all: bool = False  # the input has a block for every rank (else it is one block, or a vector)
    gives_all: bool = False  # the result has a block of every rank (else it is one block, or a vector)
    holds_in_place: Callable[..., Places] | None = None  # with MPI.IN_PLACE, if elsewhere than `holds`
    contributors: Callable[[int, int], range] = _everyone  # to a rank's result of a reduction
    varies: bool = False  # blocks have counts of their own, and places anywhere in the buffers
    counts_from: Callable[[int, int], Sequence[int]] | None = (
        None  # where counts differ: who knows those that others need
    )
    algorithms: dict[str, Algorithm] = field(default_factory=dict)


_TABLE = [
    Primitive("bcast", _at_root(_vector), _vector, rooted=True, cuts=True),
    Primitive("scatter", _at_root(_vector), _own, rooted=True, takes_all=True),
    Primitive("gather", _own, _at_root(_vector), rooted=True, gives_all=True, holds_in_place=_own_in_place),
    Primitive("reduce", _vector, _at_root(_vector), rooted=True, reduces=True, cuts=True),
    Primitive("allgather", _own, _vector, gives_all=True, holds_in_place=_own_in_place),
    Primitive("allreduce", _vector, _vector, reduces=True, cuts=True),
    Primitive("reduce_scatter", _vector, _own, reduces=True, takes_all=True),
    Primitive("alltoall", _outgoing, _incoming, takes_all=True, gives_all=True),
    Primitive("barrier", _nothing, _nothing),
    Primitive("scan", _vector, _vector, reduces=True, cuts=True, contributors=_up_to_me),
    Primitive("exscan", _vector, _but_first, reduces=True, cuts=True, contributors=_before_me),
    Primitive("scatterv", _at_root(_vector), _own, rooted=True, takes_all=True, varies=True, counts_from=_the_root),
    Primitive(
        "gatherv",
        _own,
        _at_root(_vector),
        rooted=True,
        gives_all=True,
        holds_in_place=_own_in_place,
        varies=True,
        counts_from=_the_root,
    ),
    Primitive("allgatherv", _own, _vector, gives_all=True, holds_in_place=_own_in_place, varies=True),
    Primitive("alltoallv", _outgoing, _incoming, takes_all=True, gives_all=True, varies=True, counts_from=_all_ranks),
    Primitive("alltoallw", _outgoing, _incoming, takes_all=True, gives_all=True, varies=True),
]
PRIMITIVES: dict[str, Primitive] = {primitive.name: primitive for primitive in _TABLE}


# The host of each rank, as a number; None says that each rank has one of its own.
Hosts = tuple[int, ...] | None


# Into how many parts an algorithm cuts the vector (bcast, reduce, allreduce, scan and exscan only).


def whole(size: int, segments: int, hosts: Hosts) -> int:
    """The vector stays in one piece."""
    return 1


def per_rank(size: int, segments: int, hosts: Hosts) -> int:
    """One part a rank."""
    return size


def per_segment(size: int, segments: int, hosts: Hosts) -> int:
    """As many parts as the pipeline has segments."""
    return segments


def two_per_segment(size: int, segments: int, hosts: Hosts) -> int:
    """Two parts a segment, one for each of two trees."""
    return 2 * segments


def per_lane_and_host(size: int, segments: int, hosts: Hosts) -> int:
    """As many parts as there are ranks with a counterpart on every host."""
    ranks_of = Counter(range(size) if hosts is None else hosts)
    return len(ranks_of) * min(ranks_of.values())


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A registered schedule generator and what is promised of it."""

    primitive: Primitive
    name: str
    generator: Callable[..., Schedule]
    cut: Callable[[int, int, Hosts], int]
    ordered: bool
    parameters: tuple[str, ...]
    needs_counts: bool = False

    @property
    def pipelined(self) -> bool:
        """Whether the schedule depends on a number of segments."""
        return "segments" in self.parameters

    @property
    def knows_hosts(self) -> bool:
        """Whether the schedule depends on which ranks share a host."""
        return "hosts" in self.parameters

    def parts(self, size: int, segments: int = 1, hosts: Hosts = None) -> int:
        """Into how many blocks the primitive's vector (or buffer) is cut."""
        return self.cut(size, segments, hosts) if self.primitive.cuts else size

    def count_sources(self, size: int, root: int) -> list[int]:
        """The ranks whose counts all others learn in the first rounds."""
        return list(self.primitive.counts_from(size, root)) if self.needs_counts and self.primitive.counts_from else []

    def schedule(self, rank: int, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None) -> Schedule:
        """The rounds of one rank."""
        given = {"rank": rank, "size": size, "root": root, "segments": segments, "hosts": hosts}
        return self.generator(**{name: given[name] for name in self.parameters})

    def __str__(self) -> str:
        return f"{self.primitive.name}.{self.name}"


NATIVE = "native"  # stands for the collective of MPI, which has no schedule


def _no_schedule() -> Schedule:
    raise ValueError("the collective of MPI has no schedule")


@cache
def _native(primitive: str) -> Algorithm:
    return Algorithm(PRIMITIVES[primitive], NATIVE, _no_schedule, whole, True, ())


def algorithm(
    cut: Callable[[int, int, Hosts], int] = whole, ordered: bool = True, needs_counts: bool = False
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a generator under its function's name, for the primitive that its file is named after.

    `cut` says into how many parts the vector is cut, `ordered` whether reductions keep rank order, so
    that operations which are associative but not commutative come out right.  With `needs_counts`, where ranks hand
    on blocks whose sizes only others know, the first rounds carry the blocks `counts_of` those who know them to
    everyone, and nothing else.  Only the parameters ``rank, size, root, segments, hosts`` are passed by the
    registry; others need defaults.
    """
    if inspect.isgeneratorfunction(cut):
        raise TypeError(f"write @algorithm(), with parentheses, above {cut.__name__}")

    def register(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
        file = generator.__module__.rpartition(".")[2]
        if file not in PRIMITIVES:
            valid = ", ".join(PRIMITIVES)
            raise ValueError(f"{generator.__name__} is in a file named {file}, which is not one of: {valid}")
        primitive = PRIMITIVES[file]
        if generator.__module__ != (catalogue := f"pycoll.primitives.{file}"):
            importlib.import_module(catalogue)  # now, because `algorithms_of` imports it only if there are none yet
        wanted = ("rank", "size", "root", "segments", "hosts")
        parameters = tuple(name for name in inspect.signature(generator).parameters if name in wanted)
        name = generator.__name__
        primitive.algorithms[name] = Algorithm(primitive, name, generator, cut, ordered, parameters, needs_counts)
        return generator

    return register


def adopt(primitive: str, source: str, *names: str) -> None:
    """Register algorithms of another primitive (all, if none is named) for this one too."""
    for name, other in algorithms_of(source).items():
        if not names or name in names:
            PRIMITIVES[primitive].algorithms[name] = replace(other, primitive=PRIMITIVES[primitive])


def find(primitive: str, name: str) -> Algorithm:
    """The registered algorithm of that name, or "native"; ValueError lists the valid ones."""
    catalogue = algorithms_of(primitive)
    return _native(primitive) if name == NATIVE else _found(catalogue, primitive, name, [*catalogue, NATIVE])


def find_schedule(primitive: str, name: str) -> Algorithm:
    """The registered algorithm of that name; ValueError lists those that have a schedule, as "native" has not."""
    catalogue = algorithms_of(primitive)
    return _found(catalogue, primitive, name, [*catalogue])


def _found(catalogue: dict[str, Algorithm], primitive: str, name: str, valid: list[str]) -> Algorithm:
    if isinstance(name, str) and name in catalogue:
        return catalogue[name]
    why = "has no schedule, because it is the collective of the MPI library; it " if name == NATIVE else ""
    raise ValueError(f"algorithm={name!r} {why}is not one of the algorithms of {primitive}: {', '.join(valid)}")


def algorithms_of(primitive: str) -> dict[str, Algorithm]:
    """All algorithms of a primitive by name, in the order in which its file lists them."""
    if not isinstance(primitive, str) or primitive not in PRIMITIVES:
        raise ValueError(f"primitive={primitive!r} is not one of: {', '.join(PRIMITIVES)}")
    catalogue = PRIMITIVES[primitive].algorithms
    if not catalogue:
        importlib.import_module(f"pycoll.primitives.{primitive}")
    return catalogue


def lanes(*columns: Sequence[Move | None]) -> Schedule:
    """Rounds out of columns of moves that run side by side; None leaves a gap."""
    for moves in itertools.zip_longest(*columns):
        if present := tuple(move for move in moves if move is not None):
            yield present
