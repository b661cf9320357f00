"""The neighbors of a rank in the topology of a communicator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..base.errors import MismatchError
from ..base.numbers import check_integer
from .missing import missing
from .progress import gathered, until

if TYPE_CHECKING:
    from ..schedule.neighbors import Edge, Neighbors, Stencil
    from ..schedule.registry import Algorithm

_KINDS: dict[int, Any] = {MPI.CART: MPI.Cartcomm, MPI.GRAPH: MPI.Graphcomm, MPI.DIST_GRAPH: MPI.Distgraphcomm}


def with_topology(comm: MPI.Comm) -> MPI.Intracomm:
    """The same communicator, of the class of mpi4py for its topology."""
    return _KINDS.get(comm.Get_topology(), MPI.Intracomm)(comm)  # type: ignore[no-any-return]


def neighbors_of(comm: MPI.Comm) -> Neighbors | None:
    """The neighbors of this rank; None if the communicator has no topology."""
    if (kind := comm.Get_topology()) not in _KINDS:
        return None
    typed = _KINDS[kind](comm)
    if kind == MPI.CART and math.prod(typed.dims) != comm.size:
        return None  # Open MPI leaves the grid of a communicator to one that Create_group makes of some of its ranks
    from ..schedule.neighbors import around, neighbors  # few programs need it

    sources, destinations = typed.inoutedges
    found = neighbors(comm.rank, sources, destinations, grid=kind == MPI.CART)
    stencil: Any = around(typed.dims, typed.periods) if kind == MPI.CART else comm.Get_attr(_stencil_key())
    return found._replace(stencil=stencil)


@cache
def _stencil_key() -> int:
    return MPI.Comm.Create_keyval(copy_fn=lambda comm, key, stencil: stencil)


def stencil_of(comm: MPI.Cartcomm, offsets: Iterable[Sequence[int]]) -> Stencil:
    """The grid of a communicator and some offsets; all ranks raise an error if one passes wrong or other ones."""
    from ..schedule.neighbors import Stencil

    dims, periods, _ = comm.Get_topo()
    wrong: Exception | None = None
    try:
        found = tuple(_checked(tuple(offset), len(dims)) for offset in offsets)
    except (TypeError, ValueError) as error:
        found, wrong = (), error
    everywhere = comm.allgather((found, str(wrong or "")))
    if wrong:
        raise wrong
    for rank, (theirs, problem) in enumerate(everywhere):
        if problem:
            raise MismatchError(f"rank {rank} passed wrong offsets to Create_neighborhood: {problem}")
        if theirs != everywhere[0][0]:
            raise MismatchError(f"rank {rank} passed other offsets to Create_neighborhood than rank 0")
    return Stencil(tuple(dims), tuple(map(bool, periods)), found)


def _checked(offset: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    if len(offset) != dimensions:
        raise ValueError(f"offsets: {offset} has {len(offset)} numbers for a grid of {dimensions} dimensions")
    for step in offset:
        check_integer("offsets", step, "steps in each dimension")
    return tuple(map(int, offset))


def set_stencil(comm: MPI.Comm, stencil: Stencil) -> None:
    """Note that the neighbors of all ranks of a new communicator are at the same offsets in a grid."""
    comm.Set_attr(_stencil_key(), stencil)


@dataclass(frozen=True)
class CommTopology:
    """The neighbors of this rank, and why collectives between neighbors are not possible, the same on all ranks.

    `here` returns the edges of each rank of this host.
    """

    neighbors: Neighbors
    problem: str = ""
    here: Callable[[], tuple[tuple[Edge, ...], ...]] = tuple

    def neighbors_for(self, algorithm: Algorithm) -> Neighbors:
        """What an algorithm needs to know of the neighbors."""
        return self.neighbors._replace(here=self.here()) if algorithm.needs_counts else self.neighbors


def topology_of(private: MPI.Intracomm, here: Sequence[int]) -> CommTopology | None:
    """The topology of a communicator; None if it has none.

    The ranks of a graph, which only give their own edges, tell them all others, and compare them.  `here` are the ranks
    of this host.
    """
    found = neighbors_of(private)
    if found is None:
        return None
    from ..schedule.neighbors import neighbors, stencil_neighbors

    if stencil := found.stencil:
        return CommTopology(found, "", cache(lambda: tuple(stencil_neighbors(rank, stencil).edges for rank in here)))
    sources, destinations = _gathered(private, found)
    local = [(rank, sources[rank].tolist(), destinations[rank].tolist()) for rank in here]
    different = _different(sources, destinations)
    return CommTopology(found, different, cache(lambda: tuple(neighbors(*each).edges for each in local)))


def _gathered(private: MPI.Intracomm, found: Neighbors) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The sources and the destinations of each rank."""
    what, state = "the first call of pycoll on this communicator", partial(missing, private, "taken part")
    mine = (
        [edge.source if edge else -1 for edge in found.incoming],
        [edge.to if edge else -1 for edge in found.outgoing],
    )
    lengths = gathered(private, [*map(len, mine)], what, state)
    ranks = np.empty(lengths.sum(), np.int32)
    given = np.array([*mine[0], *mine[1]], np.int32)
    until(private.Iallgatherv(given, [ranks, lengths.sum(axis=1)]).Test, what, state)
    parts = np.split(ranks, lengths.reshape(-1).cumsum()[:-1])
    return parts[::2], parts[1::2]


def _different(sources: list[np.ndarray], destinations: list[np.ndarray]) -> str:
    """How the edges of a graph differ at their two ends, in words: for each rank, the first one that comes in."""
    size = len(sources)
    into = [rank * size + each[each >= 0].astype(np.int64) for rank, each in enumerate(sources)]
    out = [rank + each[each >= 0].astype(np.int64) * size for rank, each in enumerate(destinations)]
    pairs, number = np.unique(np.concatenate([*into, *out]), return_inverse=True)
    here = np.bincount(number[: sum(map(len, into))], minlength=len(pairs))
    sent = np.bincount(number, minlength=len(pairs)) - here
    wrong: dict[int, str] = {}
    for pair, announced, expected in zip(pairs.tolist(), sent.tolist(), here.tolist()):
        if announced != expected:
            rank, source = divmod(pair, size)
            text = f"rank {source} has {announced} edges to rank {rank}, which has {expected} from it"
            wrong.setdefault(rank, text)
    return "; ".join(wrong.values())
