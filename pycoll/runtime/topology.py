"""The neighbors of a rank in the topology of a communicator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..base.errors import MismatchError
from ..base.numbers import check_integer
from .missing import missing
from .progress import until

if TYPE_CHECKING:
    from ..schedule.neighbors import Neighbors, Stencil

_KINDS: dict[int, Any] = {MPI.CART: MPI.Cartcomm, MPI.GRAPH: MPI.Graphcomm, MPI.DIST_GRAPH: MPI.Distgraphcomm}


def with_topology(comm: MPI.Comm) -> MPI.Intracomm:
    """The same communicator, of the class of mpi4py for its topology."""
    return _KINDS.get(comm.Get_topology(), MPI.Intracomm)(comm)  # type: ignore[no-any-return]


def neighbors_of(comm: MPI.Comm) -> Neighbors | None:
    """The neighbors of this rank; None if the communicator has no topology."""
    if (kind := comm.Get_topology()) not in _KINDS:
        return None
    from ..schedule.neighbors import around, neighbors  # few programs need it

    typed = _KINDS[kind](comm)
    found = neighbors(comm.rank, *typed.inoutedges, grid=kind == MPI.CART)
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


class Topology(NamedTuple):
    """The neighbors of this rank, and why collectives between neighbors are not possible, the same on all ranks."""

    neighbors: Neighbors
    problem: str


def topology_of(private: MPI.Intracomm) -> Topology | None:
    """The topology of a communicator, after all its ranks have compared their edges; None if it has none."""
    found = neighbors_of(private)
    if found is None:
        return None
    return Topology(found, "" if private.Get_topology() == MPI.CART else _different(private, found))


def _different(private: MPI.Intracomm, found: Neighbors) -> str:
    """How the edges differ at their two ends, in words; each rank of a graph only gives its own."""
    incoming = np.bincount([edge.source for edge in found.incoming if edge], minlength=private.size)
    outgoing = np.bincount([edge.to for edge in found.outgoing if edge], minlength=private.size)
    announced = np.empty_like(outgoing)
    what, state = "the first call of pycoll on this communicator", partial(missing, private, "taken part")
    until(private.Ialltoall(outgoing, announced).Test, what, state)
    wrong = np.flatnonzero(announced != incoming)[:1]
    mine = np.array([*wrong, *announced[wrong], *incoming[wrong]] if len(wrong) else [-1, 0, 0])
    table = np.empty((private.size, 3), mine.dtype)
    until(private.Iallgather(mine, table).Test, what, state)
    return "; ".join(
        f"rank {source} has {sent} edges to rank {rank}, which has {here} from it"
        for rank, (source, sent, here) in enumerate(table.tolist())
        if source >= 0
    )
