"""The collectives: check arguments, choose an algorithm, run it.

Buffers are arrays of NumPy or CuPy, or anything with the buffer protocol, ``__array_interface__``,
``__cuda_array_interface__`` or DLPack (arrays of PyTorch and JAX), used without a copy.  A send buffer with gaps is
packed (the v-variants want contiguous ones); a receive buffer must be C-contiguous and writeable, and not overlap the
send buffer.  Where it is given back, it is the very object that was given; what is allocated lies where the send
buffer does.
All ranks of the communicator call the same function with matching arguments.  ``comm=None`` is COMM_WORLD,
``algorithm=None`` lets pycoll choose (see `pycoll.selection.select`).

What a rank can see to be wrong raises an error there, before anything is sent: TypeError for a wrong type, for
wrong or unequal dtypes, or for an operation that the dtype does not have; ValueError for sizes that do not
fit, buffers that are read-only, not contiguous or overlapping, a root out of range, an unknown algorithm or
operation.

Calls of one kind, whose buffers differ only in their contents and addresses, skip most of these checks.  Arrays of up
to 4 KiB that own their memory and are passed again and again are referred to weakly, so that `numpy.ndarray.resize`
refuses them; strides that are assigned to between two such calls (which NumPy deprecates) are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.ops import OpName
from ..primitives import names
from ..schedule.registry import algorithms_of
from .call import run, run_varying


def algorithms(primitive: str) -> list[names.AlgorithmName]:
    """The names of a primitive's algorithms, as `algorithm=` takes them; ValueError if there is no such primitive."""
    return [names.AlgorithmName(name) for name in algorithms_of(primitive)]


def bcast(buf: Any, root: int = 0, *, comm: MPI.Intracomm | None = None, algorithm: names.Bcast | None = None) -> Any:
    """Broadcast: every rank's `buf` becomes the root's.

    `buf` has the same number of elements and the same dtype on all ranks, in any shape.  A list of arrays travels
    as one message a round.  Returns `buf`.
    Raises TypeError for a wrong type, ValueError for a buffer that cannot be written, a root out of range
    or an unknown algorithm.  Algorithms: see `pycoll.primitives.bcast`.
    """
    return run("bcast", None, buf, None, root, comm, algorithm)


def scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Scatter | None = None,
) -> Any:
    """Scatter: block r of the root's `sendbuf` goes to rank r's `recvbuf`.

    `sendbuf` is significant only at the root (None elsewhere): size * n elements, the blocks one after the other.
    `recvbuf` has n elements; it must be given at the non-roots.  At the root None allocates it: of shape
    ``sendbuf.shape[1:]`` if the first of several axes has length size, else with the first axis divided by
    size, else flat; MPI.IN_PLACE leaves the root's block where it is and returns None.  Returns `recvbuf`.
    Raises TypeError for wrong or unequal dtypes, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.scatter`.
    """
    return run("scatter", sendbuf, recvbuf, None, root, comm, algorithm)


def gather(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Gather | None = None,
) -> Any:
    """Gather: rank r's `sendbuf` becomes block r of the root's `recvbuf`.

    `sendbuf` has n elements on every rank; MPI.IN_PLACE at the root says that its block is in `recvbuf`
    already.  `recvbuf` is significant only at the root: size * n elements; None allocates it with shape
    ``(size, *sendbuf.shape)``.  Returns `recvbuf` at the root, None elsewhere.  Raises TypeError for wrong
    or unequal dtypes, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.gather`.
    """
    return run("gather", sendbuf, recvbuf, None, root, comm, algorithm)


def reduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Reduce | None = None,
) -> Any:
    """Reduce: the ranks' `sendbuf` are combined element by element into the root's `recvbuf`.

    `sendbuf` has n elements on every rank; MPI.IN_PLACE at the root says that its input is in `recvbuf`.
    `recvbuf` is significant only at the root: n elements; None allocates it with sendbuf's shape.  `op` is an
    `MPI.Op` or a name: "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor",
    "minloc", "maxloc" (on structured arrays of a value and an index), "avg"; a user-defined operation
    works on any number of elements, since vectors are cut.
    Returns `recvbuf` at the root, None elsewhere.  Raises TypeError for wrong or unequal dtypes and for an
    operation that the dtype does not have, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.reduce`.
    """
    return run("reduce", sendbuf, recvbuf, op, root, comm, algorithm)


def allgather(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: names.Allgather | None = None
) -> Any:
    """All-gather: rank r's `sendbuf` becomes block r of every rank's `recvbuf`.

    `sendbuf` has n elements; MPI.IN_PLACE says that the rank's block is in `recvbuf` already.  `recvbuf`
    has size * n; None allocates it with shape ``(size, *sendbuf.shape)``.  Returns `recvbuf`.  Raises
    TypeError for wrong or unequal dtypes, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.allgather`.
    """
    return run("allgather", sendbuf, recvbuf, None, 0, comm, algorithm)


def allreduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Allreduce | None = None,
) -> Any:
    """All-reduce: the ranks' `sendbuf` are combined element by element into every rank's `recvbuf`.

    `sendbuf` has n elements; MPI.IN_PLACE says that the input is in `recvbuf`.  `recvbuf` has n elements;
    None allocates it with sendbuf's shape.  Lists of arrays of one dtype travel as one message a round; of a list
    without `recvbuf` the results go into the very arrays given.  `op` as in `reduce`.  Returns `recvbuf`, which
    ends with the same bits on every rank.  Raises TypeError for wrong or unequal dtypes and for an operation that the
    dtype does not have, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.allreduce`.
    """
    return run("allreduce", sendbuf, recvbuf, op, 0, comm, algorithm)


def reduce_scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    recvcounts: Sequence[int] | None = None,
    comm: MPI.Intracomm | None = None,
    algorithm: names.ReduceScatter | None = None,
) -> Any:
    """Reduce-scatter: the ranks' `sendbuf` are combined element by element, and rank r gets block r.

    `sendbuf` has size * n elements; MPI.IN_PLACE says that the input is in `recvbuf`, whose first n
    elements then hold the block.  Otherwise `recvbuf` has n elements; None allocates it, with the shape that `scatter`
    would give it.  With `recvcounts`, the same on all ranks, block r has recvcounts[r] elements instead of n, and None
    allocates a flat `recvbuf`.  `op` as in `reduce`.  Returns the block.  Raises TypeError for wrong or unequal dtypes
    and for an operation that the dtype does not have, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.reduce_scatter`.
    """
    return run("reduce_scatter", sendbuf, recvbuf, op, 0, comm, algorithm, recvcounts)


def alltoall(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: names.Alltoall | None = None
) -> Any:
    """All-to-all: block j of rank i's `sendbuf` becomes block i of rank j's `recvbuf`.

    Both have size * n elements; with sendbuf=MPI.IN_PLACE the blocks of `recvbuf` are replaced; with
    recvbuf=None it is allocated with sendbuf's shape.  Returns `recvbuf`.  Raises TypeError for wrong or
    unequal dtypes, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.alltoall`.
    """
    return run("alltoall", sendbuf, recvbuf, None, 0, comm, algorithm)


def scan(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Scan | None = None,
) -> Any:
    """Scan: rank r's `recvbuf` becomes the combination of the `sendbuf` of ranks 0 to r, in rank order.

    Arguments, result and errors as in `allreduce`; "avg" is refused.  Algorithms: see `pycoll.primitives.scan`.
    """
    return run("scan", sendbuf, recvbuf, op, 0, comm, algorithm)


def exscan(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Exscan | None = None,
) -> Any:
    """Exclusive scan: rank r's `recvbuf` becomes the combination of the `sendbuf` of ranks 0 to r-1, in rank order.

    Rank 0's `recvbuf` stays as it is, and is allocated nowhere: with recvbuf=None rank 0 gets None.  Otherwise as
    `scan`.  Algorithms: see `pycoll.primitives.exscan`.
    """
    return run("exscan", sendbuf, recvbuf, op, 0, comm, algorithm)


def scatterv(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Scatterv | None = None,
) -> Any:
    """Scatter of blocks of different lengths: block r of the root's `sendbuf` goes to rank r's `recvbuf`.

    `sendbuf` is significant only at the root: ``[buf, counts]``, ``[buf, (counts, displs)]`` or
    ``[buf, counts, displs, type]`` as in mpi4py, with a count and a displacement in elements for each rank;
    without displacements the blocks lie side by side.  `recvbuf` has as many elements as its block; it must be
    given at the non-roots, at the root None allocates it and MPI.IN_PLACE leaves the block where it is.  Returns
    `recvbuf`.  Raises TypeError or ValueError for counts and displacements that are no lists of `size` integers, or
    lead out of the buffer.  Algorithms: see `pycoll.primitives.scatterv`.
    """
    return run("scatterv", sendbuf, recvbuf, None, root, comm, algorithm, None, run_varying)


def gatherv(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: names.Gatherv | None = None,
) -> Any:
    """Gather of blocks of different lengths: rank r's `sendbuf` becomes block r of the root's `recvbuf`.

    `recvbuf` is significant only at the root: ``[buf, counts]``, ``[buf, (counts, displs)]`` or
    ``[buf, counts, displs, type]``, where ``[None, counts]`` allocates it; blocks must not overlap.  With
    sendbuf=MPI.IN_PLACE the root's block is in its place already.  Returns the root's array, None elsewhere.
    Errors as in `scatterv`.  Algorithms: see `pycoll.primitives.gatherv`.
    """
    return run("gatherv", sendbuf, recvbuf, None, root, comm, algorithm, None, run_varying)


def allgatherv(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: names.Allgatherv | None = None
) -> Any:
    """All-gather of blocks of different lengths: rank r's `sendbuf` becomes block r of every rank's `recvbuf`.

    `recvbuf` as in `gatherv`, on all ranks with the same counts.  Returns its array.  Errors as in `scatterv`.
    Algorithms: see `pycoll.primitives.allgatherv`.
    """
    return run("allgatherv", sendbuf, recvbuf, None, 0, comm, algorithm, None, run_varying)


def alltoallv(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: names.Alltoallv | None = None
) -> Any:
    """All-to-all of blocks of different lengths: block j of rank i's `sendbuf` becomes block i of rank j's `recvbuf`.

    Both are ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``; ``[None, counts]``
    allocates `recvbuf`, and with sendbuf=MPI.IN_PLACE its blocks are replaced.  Returns `recvbuf`'s array.  Errors
    as in `scatterv`.  Algorithms: see `pycoll.primitives.alltoallv`.
    """
    return run("alltoallv", sendbuf, recvbuf, None, 0, comm, algorithm, None, run_varying)


def alltoallw(
    sendbuf: Any, recvbuf: Any, *, comm: MPI.Intracomm | None = None, algorithm: names.Alltoallw | None = None
) -> Any:
    """All-to-all of blocks of different lengths and datatypes.

    Both buffers are ``[buf, counts, displs, types]``, with displacements in bytes, or ``[buf, types]`` with one
    element of each datatype at the buffer's start; with sendbuf=MPI.IN_PLACE the blocks of `recvbuf` are replaced.
    Returns `recvbuf`'s array.  Errors as in `scatterv`.  Algorithms: see `pycoll.primitives.alltoallw`.
    """
    return run("alltoallw", sendbuf, recvbuf, None, 0, comm, algorithm, None, run_varying)


def barrier(*, comm: MPI.Intracomm | None = None, algorithm: names.Barrier | None = None) -> None:
    """Barrier: no rank returns before every rank has called.

    Raises ValueError for an unknown algorithm.  Algorithms: see `pycoll.primitives.barrier`.
    """
    run("barrier", _EMPTY, _EMPTY, None, 0, comm, algorithm)


_EMPTY = np.empty(0, np.uint8)
