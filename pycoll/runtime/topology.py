"""The neighbors of a rank in the topology of a communicator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .missing import missing
from .progress import until

if TYPE_CHECKING:
    from ..schedule.neighbors import Neighbors

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
    return neighbors(comm.rank, sources, destinations, grid=kind == MPI.CART)


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
