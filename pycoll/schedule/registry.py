"""The primitives, and the registry of their algorithms."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from .cuts import whole
from .hosts import LEVELS, Hosts, without_domains
from .moves import Block, Schedule

if TYPE_CHECKING:
    from .neighbors import Edge, Neighbors

# The blocks with which each primitive starts and ends: {block: its index in the send (receive) buffer}, that of a part
# of the vector or of the block of a rank.

Indices = dict[Block, int]


def _vector(rank: int, size: int, root: int, parts: int) -> Indices:
    return {block: block for block in range(parts)}


def _own(rank: int, size: int, root: int, parts: int) -> Indices:
    return {rank: 0}


def _own_in_place(rank: int, size: int, root: int, parts: int) -> Indices:
    return {rank: rank}


def _nothing(rank: int, size: int, root: int, parts: int) -> Indices:
    return {}


def _outgoing(rank: int, size: int, root: int, parts: int) -> Indices:
    return {(rank, to): to for to in range(size)}


def _incoming(rank: int, size: int, root: int, parts: int) -> Indices:
    return {(source, rank): source for source in range(size)}


def _at_root(indices: Callable[..., Indices]) -> Callable[..., Indices]:
    return lambda rank, size, root, parts: indices(rank, size, root, parts) if rank == root else {}


def _but_first(rank: int, size: int, root: int, parts: int) -> Indices:
    return _vector(rank, size, root, parts) if rank > 0 else {}


# The ranks whose contributions a result combines, and the ranks that know the counts that others need.


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
    """Return the block with the counts given to `rank`, 8 bytes for each rank; see `algorithm(needs_counts=True)`."""
    return ("counts", rank)


@dataclass(frozen=True, eq=False)
class Primitive:
    """A collective: the blocks that a rank holds before and wants after, and their indices in the buffers."""

    name: str
    holds: Callable[..., Indices]
    wants: Callable[..., Indices]
    rooted: bool = False
    reduces: bool = False
    cuts: bool = False  # the algorithm decides into how many parts the vector is cut
    takes_all: bool = False  # the input has a block for every rank (else it is one block, or a vector)
    gives_all: bool = False  # the result has a block of every rank (else it is one block, or a vector)
    holds_in_place: Callable[..., Indices] | None = None  # replaces `holds` with MPI.IN_PLACE
    contributors: Callable[[int, int], range] = _everyone  # the ranks that contribute to the result of a rank
    varies: bool = False  # blocks have their own counts and displacements
    counts_from: Callable[[int, int], Sequence[int]] | None = None  # the ranks that know counts that others need
    near: bool = False  # blocks go to and come from neighbors only, by `pycoll.schedule.neighbors`
    algorithms: dict[str, Algorithm] = field(default_factory=dict)
    families: dict[str, Algorithm] = field(default_factory=dict)  # by their names without a number

    @property
    def lengths_known(self) -> bool:
        """Whether each rank knows the lengths of the blocks of all ranks."""
        return self.name == "allgatherv" or not (self.varies or self.near)

    def block_of(self, edge: Edge) -> Block:
        """Return the block that goes along an edge; for an all-gather the same along all edges of its source."""
        return edge if self.takes_all else edge.source

    def held_by(self, rank: int, size: int, root: int, parts: int, edges: Neighbors | None) -> list[Block]:
        """Return the blocks that a rank holds at the start; `edges` are those of the rank, between neighbors."""
        if edges is None:
            return list(self.holds(rank, size, root, parts))
        return list(dict.fromkeys(self.block_of(edge) for edge in edges.outgoing if edge))

    def wanted_by(self, rank: int, size: int, root: int, parts: int, edges: Neighbors | None) -> list[Block]:
        """Return the blocks that a rank must have at the end."""
        if edges is None:
            return list(self.wants(rank, size, root, parts))
        return list(dict.fromkeys(self.block_of(edge) for edge in edges.incoming if edge))


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
_BETWEEN_NEIGHBORS = [
    Primitive("neighbor_allgather", _nothing, _nothing, gives_all=True, near=True),
    Primitive("neighbor_allgatherv", _nothing, _nothing, gives_all=True, near=True, varies=True),
    Primitive("neighbor_alltoall", _nothing, _nothing, takes_all=True, gives_all=True, near=True),
    Primitive("neighbor_alltoallv", _nothing, _nothing, takes_all=True, gives_all=True, near=True, varies=True),
    Primitive("neighbor_alltoallw", _nothing, _nothing, takes_all=True, gives_all=True, near=True, varies=True),
]
NEIGHBORHOODS: dict[str, Primitive] = {primitive.name: primitive for primitive in _BETWEEN_NEIGHBORS}
"""The collectives between neighbors, which need a communicator with a topology."""
COLLECTIVES = PRIMITIVES | NEIGHBORHOODS


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A registered schedule generator and its properties."""

    primitive: Primitive
    name: str
    generator: Callable[..., Schedule]
    cut: Callable[[int, int, Hosts], int]
    ordered: bool
    parameters: tuple[str, ...]
    needs_counts: bool = False
    k: int | None = None  # the number after the colon of its name; for a family, the smallest one
    levels: tuple[str, ...] = ()  # the kinds of domains that it tells apart, if it needs others than hosts
    needs_stencil: bool = False  # it is for neighbors at the same offsets, and for blocks of one length
    symmetry: Callable[[int], tuple[int, ...]] | None = None
    only: tuple[int, int] | None = None  # the number of ranks and the root of a schedule that is for no others

    @property
    def stem(self) -> str:
        """Its name in names of files and in links."""
        return f"{self.primitive.name}-{re.sub('[:=+]', '-', self.name)}"

    @property
    def pipelined(self) -> bool:
        """Whether the schedule depends on a number of segments."""
        return "segments" in self.parameters

    @property
    def knows_hosts(self) -> bool:
        """Whether the schedule depends on which ranks share a host."""
        return "hosts" in self.parameters

    def parts(self, size: int, segments: int = 1, hosts: Hosts = None) -> int:
        """Return the number of blocks into which the vector or buffer of the primitive is cut."""
        return self.cut(size, segments, self._seen(hosts)) if self.primitive.cuts else size

    def _seen(self, hosts: Hosts) -> Hosts:
        """Return the hosts alone for a schedule that does not know smaller domains."""
        return hosts if hosts is None or self.levels else without_domains(hosts)

    def count_sources(self, size: int, root: int) -> list[int]:
        """Return the ranks that send their counts to all other ranks in the first rounds."""
        return list(self.primitive.counts_from(size, root)) if self.needs_counts and self.primitive.counts_from else []

    def count_rows(
        self, rank: int, size: int, root: int, hosts: Hosts = None, neighbors: Neighbors | None = None
    ) -> dict[int, int]:
        """Return the ranks whose counts this rank learns in the first rounds, and how many each one has.

        Between neighbors, these are the ranks of its host, which tell each other the lengths of the blocks of their
        edges.
        """
        if self.needs_counts and neighbors:
            where = range(size) if hosts is None else without_domains(hosts)
            here = [other for other in range(size) if where[other] == where[rank]]
            return dict(zip(here, map(len, neighbors.here)))
        return dict.fromkeys(self.count_sources(size, root), size)

    def schedule(
        self,
        rank: int,
        size: int,
        root: int = 0,
        segments: int = 1,
        hosts: Hosts = None,
        neighbors: Neighbors | None = None,
    ) -> Schedule:
        """Generate the rounds of one rank."""
        given: dict[str, Any] = {"rank": rank, "size": size, "root": root, "segments": segments}
        given |= {"hosts": self._seen(hosts), "k": self.k, "neighbors": neighbors, "block_of": self.primitive.block_of}
        if self.primitive.near and neighbors is None:
            raise ValueError(f"{self} depends on the topology of a communicator, which is not known here")
        return self.generator(**{name: given[name] for name in self.parameters})

    @cached_property
    def own(self) -> bool:
        """Whether it was registered outside of the package."""
        return not self.generator.__module__.startswith("pycoll.primitives.")

    def __str__(self) -> str:
        return f"{self.primitive.name}.{self.name}"


NATIVE = "native"  # the native collective of MPI, which has no schedule


def _no_schedule() -> Schedule:
    raise ValueError("the native collective of MPI has no schedule")


@cache
def _native(primitive: str) -> Algorithm:
    return Algorithm(COLLECTIVES[primitive], NATIVE, _no_schedule, whole, True, ())


def algorithm(
    cut: Callable[[int, int, Hosts], int] = whole,
    ordered: bool = True,
    needs_counts: bool = False,
    listed: Sequence[int] = (),
    least: int = 2,
    levels: Sequence[str] = (),
    symmetry: Callable[..., tuple[int, ...]] | None = None,
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a generator under the name of its function, for the primitive that its file is named after.

    `cut` returns the number of parts into which the vector is cut.  `ordered` is true if reductions keep rank order, as
    operations that do not commute require.  `needs_counts` is for algorithms in which ranks forward blocks whose sizes
    only others know.  Their first rounds send the blocks `counts_of` to all ranks, and nothing else.  `symmetry`
    returns the grid on which all ranks do the same (`pycoll.schedule.symmetry`); such a schedule is simulated faster.
    The registry passes only the parameters ``rank, size, root, segments, hosts, k``; all others need defaults.

    A generator with the parameter ``k`` defines a family of algorithms, such as ``knomial:4`` with k=4.  The numbers
    `listed` are in the catalogue; `find` accepts all numbers from `least`.  A generator with `levels` also defines a
    family, such as ``hierarchical:levels=node+numa``; its parameter ``hosts`` has the domains of each rank.
    """
    if inspect.isgeneratorfunction(cut):
        raise TypeError(f"write @algorithm(), with parentheses, above {cut.__name__}")
    if not callable(cut):
        raise TypeError(f"cut must be a function, for example pycoll.schedule.cuts.per_rank, not {cut!r}")

    def register(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
        file = generator.__module__.rpartition(".")[2]
        if file not in PRIMITIVES:
            valid = ", ".join(PRIMITIVES)
            raise ValueError(f"{generator.__name__} is in a file named {file}, which is not one of: {valid}")
        primitive = PRIMITIVES[file]
        if generator.__module__ != (catalogue := f"pycoll.primitives.{file}"):
            importlib.import_module(catalogue)  # first, so that its names are known
        parameters = parameters_of(generator)
        name = generator.__name__
        depends_on = {"root", "segments", "hosts"} & {*parameters} | ({"needs_counts"} if needs_counts else set())
        if symmetry and depends_on:
            raise ValueError(f"{name} depends on {min(depends_on)}: then symmetry cannot be given")
        if generator.__module__ != catalogue and (owner := _owner(primitive, name)):
            raise ValueError(f"{name} is the name of {owner} for {file}: choose another name")
        before = generator.__globals__.get(name)
        if callable(before) and before not in [each.generator for each in primitive.algorithms.values()]:
            raise ValueError(f"the file of {primitive.name} already defines {name}: choose another name")
        found = Algorithm(primitive, name, generator, cut, ordered, parameters, needs_counts, symmetry=symmetry)
        if levels:
            primitive.families[name] = replace(found, levels=tuple(levels))
            listed_one = in_levels(primitive.families[name], tuple(levels))
            primitive.algorithms[listed_one.name] = listed_one
            return generator
        if "k" not in parameters:
            primitive.algorithms[name] = found
            return generator
        if not listed:
            raise ValueError(f"{name} has the parameter k: list some of its numbers, for example listed=(4, 8)")
        primitive.families[name] = replace(found, k=least)
        primitive.algorithms.update((f"{name}:{k}", member(primitive.families[name], k)) for k in listed)
        return generator

    return register


def register_for_neighbors(
    primitive: str, generator: Callable[..., Schedule], needs_counts: bool = False, needs_stencil: bool = False
) -> None:
    """Register a generator for a collective between neighbors."""
    name, given = generator.__name__, tuple(inspect.signature(generator).parameters)
    found = Algorithm(
        NEIGHBORHOODS[primitive], name, generator, whole, True, given, needs_counts, needs_stencil=needs_stencil
    )
    NEIGHBORHOODS[primitive].algorithms[found.name] = found


def register_schedule(algorithm: Algorithm) -> None:
    """Register an algorithm under its name; raise ValueError if this is not possible, see `check_name`."""
    check_name(algorithm.primitive, algorithm.name)
    algorithm.primitive.algorithms[algorithm.name] = algorithm


def check_name(primitive: Primitive, name: str) -> None:
    """Raise ValueError unless a schedule of a primitive may have this name, which pycoll must not use."""
    algorithms_of(primitive.name)  # so that their names are known
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a name of letters, digits and _")
    if owner := _owner(primitive, name):
        raise ValueError(f"{name} is the name of {owner} for {primitive.name}: choose another name")


def _owner(primitive: Primitive, name: str) -> str:
    """Return what has a name that an algorithm outside of the package must not take, or an empty string."""
    if name == NATIVE:
        return "the collective of the MPI library"
    for found, owner in [(primitive.algorithms, "an algorithm"), (primitive.families, "a family of algorithms")]:
        if name in found and not found[name].own:
            return f"{owner} of pycoll"
    return ""


def own_algorithms() -> list[Algorithm]:
    """Return the algorithms that were registered outside of the package."""
    return [found for each in PRIMITIVES.values() for found in each.algorithms.values() if found.own]


def own_digest() -> int:
    """Return a number of 64 bits for the names and the sources of the algorithms in `own_algorithms`."""
    found = sorted(own_algorithms(), key=str)
    if not found:
        return 0
    import hashlib

    digest = hashlib.sha256()
    for each in found:
        digest.update(f"{each}\n".encode())
        if each.only:
            digest.update((each.generator.__doc__ or "").encode())  # the whole document
            continue
        with contextlib.suppress(OSError):  # there is no source, for example in an interactive session
            digest.update(inspect.getsource(each.generator).encode())
    return int.from_bytes(digest.digest()[:8], "little", signed=True)


def parameters_of(generator: Callable[..., Schedule]) -> tuple[str, ...]:
    """Return the parameters of a generator that the registry passes; raise TypeError if others have no defaults."""
    wanted = ("rank", "size", "root", "segments", "hosts", "k")
    found = inspect.signature(generator).parameters
    passed = [name for name in wanted if name in found and found[name].kind != inspect.Parameter.POSITIONAL_ONLY]
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [name for name, each in found.items() if each.default is each.empty and each.kind not in any_number]
    if wrong := [name for name in needed if name not in passed]:
        why = f"{generator.__name__} has no default for {', '.join(wrong)}"
        raise TypeError(f"{why}; pycoll passes only {', '.join(wanted)} by name")
    return tuple(passed)


def adopt(primitive: str, source: str, *names: str) -> None:
    """Register algorithms of the primitive `source` (all of them, if none is named) for this primitive too."""
    to = PRIMITIVES[primitive]
    for name, other in algorithms_of(source).items():
        family = PRIMITIVES[source].families.get(name.partition(":")[0])
        if other.own or (names and name not in names):
            continue
        if family:
            family = to.families.setdefault(family.name, replace(family, primitive=to))
        to.algorithms[name] = member(family, other.k) if family and other.k else replace(other, primitive=to)


@cache
def member(family: Algorithm, k: int) -> Algorithm:
    """Return the algorithm of a family with this number."""

    def of_k(function: Any) -> Any:
        return partial(function, k=k) if function and "k" in inspect.signature(function).parameters else function

    cut, symmetry = of_k(family.cut), of_k(family.symmetry)
    return replace(family, name=f"{family.name}:{k}", k=k, cut=cut, symmetry=symmetry)


def in_levels(family: Algorithm, levels: tuple[str, ...]) -> Algorithm:
    """Return the algorithm of a family with these levels."""
    return replace(family, name=f"{family.name}:levels={'+'.join(levels)}", levels=levels)


def find(primitive: str, name: str) -> Algorithm:
    """Return the registered algorithm with this name, or "native"; raise ValueError that lists the valid names."""
    if name == NATIVE and isinstance(primitive, str) and primitive in COLLECTIVES:
        return _native(primitive)  # without importing the others
    catalogue = algorithms_of(primitive)
    return _found(catalogue, primitive, name, [*catalogue, NATIVE])


def find_schedule(primitive: str, name: str) -> Algorithm:
    """Return the registered algorithm with this name; raise ValueError for "native", which has no schedule."""
    catalogue = algorithms_of(primitive)
    return _found(catalogue, primitive, name, [*catalogue])


def has_algorithm(primitive: str, name: str) -> bool:
    """Return whether `find` accepts this name for a primitive."""
    try:
        find(primitive, name)
    except (TypeError, ValueError):
        return False
    return True


def _found(catalogue: dict[str, Algorithm], primitive: str, name: str, valid: list[str]) -> Algorithm:
    if not isinstance(name, str):
        raise TypeError(f"algorithm={name!r} is not the name of an algorithm")
    if name in catalogue:
        return catalogue[name]
    base, _, number = name.partition(":")
    if family := COLLECTIVES[primitive].families.get(base):
        return _member_named(family, name, number)
    why = "has no schedule, because it is the collective of the MPI library; it " if name == NATIVE else ""
    raise ValueError(f"algorithm={name!r} {why}is not one of the algorithms of {primitive}: {', '.join(valid)}")


def _member_named(family: Algorithm, name: str, number: str) -> Algorithm:
    """Return the member of a family whose name ends with a number; raise ValueError for other endings."""
    if family.levels:
        return in_levels(family, _levels_named(family, name, number))
    least = family.k or 0
    if re.fullmatch("[1-9][0-9]{0,8}", number, re.ASCII) and int(number) >= least:
        return member(family, int(number))
    wrong = f"{number!r} is not an integer of at least {least}" if number else "the number is missing"
    raise ValueError(f"algorithm={name!r} is not a name of the form {family.name}:K: {wrong}")


def _levels_named(family: Algorithm, name: str, text: str) -> tuple[str, ...]:
    """Return the levels in the ending of a name, or those of the family if it has none; raise ValueError for others."""
    if name == family.name:
        return family.levels
    found = tuple(text.removeprefix("levels=").split("+"))
    if text.startswith("levels=") and found == tuple(level for level in LEVELS if level in found):
        return found
    why = f"{text!r} is not levels= and some of {'+'.join(LEVELS)}, in this order"
    raise ValueError(f"algorithm={name!r} is not a name of the form {family.name}:levels=A+B: {why}")


_imported: set[str] = set()  # primitives of which all algorithms are registered


def algorithms_of(primitive: str) -> dict[str, Algorithm]:
    """Return all algorithms of a primitive by name, in the order of its file."""
    if not isinstance(primitive, str) or primitive not in COLLECTIVES:
        raise ValueError(f"primitive={primitive!r} is not one of: {', '.join(COLLECTIVES)}")
    if primitive not in _imported:
        file = "neighbors" if COLLECTIVES[primitive].near else primitive
        importlib.import_module(f"pycoll.primitives.{file}")  # waits if another thread is importing it
        _imported.add(primitive)
    return COLLECTIVES[primitive].algorithms
