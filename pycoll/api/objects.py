"""Collectives of Python objects, as functions.

Their arguments and results are those of the lower-case methods of `pycoll.Comm` (`pycoll.api.comm_objects`); `comm` is
the communicator, COMM_WORLD by default.  With `algorithm`, reductions combine objects in the order of the algorithm,
which may not be rank order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..runtime.attach import attach

if TYPE_CHECKING:
    from ..primitives import names
    from .comm_objects import Function


def bcast_object(obj: Any, *, root: int = 0, comm: MPI.Comm | None = None, algorithm: names.Bcast | None = None) -> Any:
    """Return the object of the root on all ranks; other ranks may pass None.  See `pycoll.Comm.bcast`."""
    return attach(comm).objects.bcast(obj, root, algorithm)


def scatter_object(
    objs: Sequence[Any] | None, *, root: int = 0, comm: MPI.Comm | None = None, algorithm: names.Scatter | None = None
) -> Any:
    """Return the object of the root that is for this rank; other ranks may pass None.  See `pycoll.Comm.scatter`."""
    return attach(comm).objects.scatter(objs, root, algorithm)


def gather_object(
    obj: Any, *, root: int = 0, comm: MPI.Comm | None = None, algorithm: names.Gather | None = None
) -> list[Any] | None:
    """Return the objects of all ranks at the root, and None on other ranks.  See `pycoll.Comm.gather`."""
    return attach(comm).objects.gather(obj, root, algorithm)  # type: ignore[no-any-return]


def allgather_object(obj: Any, *, comm: MPI.Comm | None = None, algorithm: names.Allgatherv | None = None) -> list[Any]:
    """Return the objects of all ranks.  See `pycoll.Comm.allgather`."""
    return attach(comm).objects.allgather(obj, algorithm)  # type: ignore[no-any-return]


def alltoall_object(
    objs: Sequence[Any], *, comm: MPI.Comm | None = None, algorithm: names.Alltoall | None = None
) -> list[Any]:
    """Return the objects for this rank, one of each rank.  See `pycoll.Comm.alltoall`."""
    return attach(comm).objects.alltoall(objs, algorithm)  # type: ignore[no-any-return]


def reduce_object(
    obj: Any,
    op: Function = MPI.SUM,
    *,
    root: int = 0,
    comm: MPI.Comm | None = None,
    algorithm: names.Reduce | None = None,
) -> Any:
    """Return the combination of the objects at the root, and None on other ranks.  See `pycoll.Comm.reduce`."""
    return attach(comm).objects.reduce(obj, op, root, algorithm)


def allreduce_object(
    obj: Any, op: Function = MPI.SUM, *, comm: MPI.Comm | None = None, algorithm: names.Allreduce | None = None
) -> Any:
    """Return the combination of the objects of all ranks.  See `pycoll.Comm.allreduce`."""
    return attach(comm).objects.allreduce(obj, op, algorithm)


def scan_object(
    obj: Any, op: Function = MPI.SUM, *, comm: MPI.Comm | None = None, algorithm: names.Scan | None = None
) -> Any:
    """Return the combination of the objects of the ranks up to this one.  See `pycoll.Comm.scan`."""
    return attach(comm).objects.scan(obj, op, algorithm)


def exscan_object(
    obj: Any, op: Function = MPI.SUM, *, comm: MPI.Comm | None = None, algorithm: names.Exscan | None = None
) -> Any:
    """Return the combination of the objects of the ranks before this one; None on rank 0.  See `pycoll.Comm.exscan`."""
    return attach(comm).objects.exscan(obj, op, algorithm)
