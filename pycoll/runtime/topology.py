"""The neighbors of a rank in the topology of a communicator."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..base.numbers import check_integer, ranks_named
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
    from ..schedule.neighbors import neighbors  # few programs need it

    sources, destinations = _KINDS[kind](comm).inoutedges
    found = neighbors(comm.rank, sources, destinations, grid=kind == MPI.CART)
    stencil: Any = comm.Get_attr(_stencil_key())
    return found._replace(stencil=stencil)


@cache
def _stencil_key() -> int:
    return MPI.Comm.Create_keyval(copy_fn=lambda comm, key, stencil: stencil)


def stencil_of(comm: MPI.Cartcomm, offsets: Sequence[Sequence[int]]) -> Stencil:
    """The grid of a communicator and some offsets; raises ValueError or TypeError for wrong ones."""
    from ..schedule.neighbors import Stencil

    dims, periods, _ = comm.Get_topo()
    found = []
    for offset in offsets:
        if len(offset) != len(dims):
            raise ValueError(f"offsets: {tuple(offset)} has {len(offset)} numbers for a grid of {len(dims)} dimensions")
        for step in offset:
            check_integer("offsets", step, "steps in each dimension")
        found.append(tuple(map(int, offset)))
    return Stencil(tuple(dims), tuple(map(bool, periods)), tuple(found))


def has_stencil(comm: MPI.Comm, stencil: Stencil) -> None:
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
    digest = zlib.crc32(str(found.stencil).encode())
    mine = np.array([*wrong, *announced[wrong], *incoming[wrong], digest] if len(wrong) else [-1, 0, 0, digest])
    table = np.empty((private.size, 4), mine.dtype)
    until(private.Iallgather(mine, table).Test, what, state)
    if others := np.flatnonzero(table[:, 3] != table[0, 3]).tolist():
        return f"{ranks_named(others)} passed other offsets to Create_neighborhood than rank 0"
    return "; ".join(
        f"rank {source} has {sent} edges to rank {rank}, which has {here} from it"
        for rank, (source, sent, here, _) in enumerate(table.tolist())
        if source >= 0
    )
