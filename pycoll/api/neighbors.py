"""Collectives between neighbors, on communicators with a topology: see `pycoll.api.collectives` for the arguments.

The topology comes from ``Create_cart``, ``Create_graph`` or ``Create_dist_graph``.  In a grid, the neighbors are those
in the negative and in the positive direction of each dimension, in this order.  Where the grid ends, there is no
neighbor, and the block is not used.  MPI.IN_PLACE is not allowed.

A wrong argument raises an error before any message is sent: TypeError for a wrong type, unequal dtypes, or a
communicator without a topology; ValueError for sizes that do not match the number of neighbors, overlapping buffers, or
an unknown algorithm.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..arguments.mpi_arguments import read_varying
from ..schedule.registry import NEIGHBORHOODS
from .collectives import run
from .watched import watch

if TYPE_CHECKING:
    from ..primitives import names


def neighbor_allgather(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm, algorithm: names.Neighbors | None = None
) -> Any:
    """Neighbor all-gather: send `sendbuf` to all neighbors, and receive a block from each.

    Parameters
    ----------
    sendbuf : buffer
        n elements.
    recvbuf : buffer, optional
        indegree * n elements: a block from each source; allocated by default.
    comm : MPI.Intracomm
        A communicator with a topology.
    algorithm : str, optional
        "direct", which is the default, "two_level" or "native".

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.neighbors` lists them.
    """
    return run("neighbor_allgather", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def neighbor_allgatherv(
    sendbuf: Any, recvbuf: Any, *, comm: MPI.Intracomm, algorithm: names.Neighbors | None = None
) -> Any:
    """Neighbor all-gather with blocks of different lengths.

    Parameters
    ----------
    sendbuf : buffer specification
        The block of this rank.
    recvbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``, with a block from each
        source; ``[None, counts]`` allocates the array.
    comm : MPI.Intracomm
        A communicator with a topology.
    algorithm : str, optional
        "direct", which is the default, "two_level" or "native".

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.neighbors` lists them.
    """
    return run("neighbor_allgatherv", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def neighbor_alltoall(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm, algorithm: names.NeighborAlltoall | None = None
) -> Any:
    """Neighbor all-to-all: send a block to each neighbor, and receive one from each.

    Parameters
    ----------
    sendbuf : buffer
        outdegree * n elements: a block for each destination.
    recvbuf : buffer, optional
        indegree * n elements: a block from each source; allocated by default.
    comm : MPI.Intracomm
        A communicator with a topology.
    algorithm : str, optional
        "direct", which is the default, "two_level", "combining" or "native".  "combining" needs a communicator of
        `Cartcomm.Create_neighborhood`.

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.neighbors` lists them.
    """
    return run("neighbor_alltoall", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def neighbor_alltoallv(
    sendbuf: Any, recvbuf: Any, *, comm: MPI.Intracomm, algorithm: names.Neighbors | None = None
) -> Any:
    """Neighbor all-to-all with blocks of different lengths.

    Parameters
    ----------
    sendbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``, with a block for each
        destination.
    recvbuf : buffer specification
        The same, with a block from each source; ``[None, counts]`` allocates the array.
    comm : MPI.Intracomm
        A communicator with a topology.
    algorithm : str, optional
        "direct", which is the default, "two_level" or "native".

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.neighbors` lists them.
    """
    return run("neighbor_alltoallv", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def neighbor_alltoallw(
    sendbuf: Any, recvbuf: Any, *, comm: MPI.Intracomm, algorithm: names.Neighbors | None = None
) -> Any:
    """Neighbor all-to-all with blocks of different lengths and datatypes.

    Parameters
    ----------
    sendbuf : buffer specification
        ``[buf, counts, displs, types]`` with displacements in bytes, and a block for each destination.
    recvbuf : buffer specification
        The same, with a block from each source.
    comm : MPI.Intracomm
        A communicator with a topology.
    algorithm : str, optional
        "direct", which is the default, "two_level" or "native".

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.neighbors` lists them.
    """
    return run("neighbor_alltoallw", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


watch(sys.modules[__name__], NEIGHBORHOODS)
