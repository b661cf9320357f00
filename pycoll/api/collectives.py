"""The collectives: check arguments, choose an algorithm, run it.

Buffers are NumPy or CuPy arrays, or objects that support the buffer protocol, ``__array_interface__``,
``__cuda_array_interface__`` or DLPack (arrays of PyTorch and JAX).  They are used without a copy.  A send buffer with
gaps is packed; the v-variants require contiguous ones.  A receive buffer must be C-contiguous and writeable.  If both
buffers of a reduction or an all-to-all are the same memory, it is in place, as with MPI.IN_PLACE; they must not overlap
in any other way.  If a function returns the receive buffer, it is the object that was passed.  An allocated
result is in the same memory as the send buffer, host or GPU.
All ranks of the communicator call the same function with matching arguments.  ``comm=None`` is COMM_WORLD;
``algorithm=None`` lets pycoll choose (see `pycoll.selection.select`).

A wrong argument raises an error on the rank that passed it, before any message is sent:

- TypeError for a wrong type, for wrong or unequal dtypes, for arrays with a mask, a unit or another byte order, for
  counts or displacements that are not integers, or for an operation that is not defined for the dtype;
- ValueError for sizes, counts or displacements that do not match the buffers or the number of ranks, for receive
  buffers that are read-only, for receive buffers and those of a broadcast that are not contiguous, for buffers or
  blocks that overlap, for a root out of range, and for an unknown algorithm or operation.

Calls of one kind differ only in the contents and addresses of their buffers; later ones skip most of these checks.
Assigning to the strides of an array between two calls, which is deprecated in NumPy, is not detected.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .. import core
from ..arguments.check_buffers import check_buffers
from ..arguments.mpi_arguments import read_varying
from ..arguments.ops import OpName
from ..runtime import dispatch
from ..runtime.attach import attach, channels
from ..runtime.calls import Call, Reader
from ..runtime.front import NUMBERS
from ..runtime.interruptions import interruptions_delayed
from ..schedule.registry import PRIMITIVES
from .watched import watch

if TYPE_CHECKING:
    from ..primitives import names

NO_FRONT = core.NoFront()


def bcast(buf: Any, root: int = 0, *, comm: MPI.Comm | None = None, algorithm: names.Bcast | None = None) -> Any:
    """Broadcast: copy `buf` from the root to all ranks.

    Parameters
    ----------
    buf : buffer or list of buffers
        n elements: the input at the root, the output on the other ranks.  n and the dtype are the same on all ranks;
        shapes may differ.  The arrays of a list are sent together, in one message per round.
    root : int, default 0
        The rank that sends.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.bcast`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    buffer
        `buf`, the object that was passed.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("bcast", None, buf, None, root, comm, algorithm)


def scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Scatter | None = None,
) -> Any:
    """Scatter: send block r of `sendbuf` at the root to rank r.

    Parameters
    ----------
    sendbuf : buffer
        size * n elements: the blocks, one after the other.  Significant only at the root; None elsewhere.
    recvbuf : buffer, optional
        n elements, for the block of this rank.  At the root, None allocates an array, and MPI.IN_PLACE leaves the
        block in `sendbuf`.  The other ranks must pass a buffer.
    root : int, default 0
        The rank that sends.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.scatter`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array; None at the root with MPI.IN_PLACE.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.

    Notes
    -----
    The shape of the allocated array depends on the shape of `sendbuf`:

    - ``sendbuf.shape[1:]`` if `sendbuf` has several axes and the first has length size;
    - else ``(sendbuf.shape[0] // size, *sendbuf.shape[1:])`` if size divides the length of the first axis;
    - else ``(n,)``.
    """
    return run("scatter", sendbuf, recvbuf, None, root, comm, algorithm)


def gather(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Gather | None = None,
) -> Any:
    """Gather: receive `sendbuf` of rank r as block r of `recvbuf` at the root.

    Parameters
    ----------
    sendbuf : buffer
        n elements.  MPI.IN_PLACE at the root: its block is already in `recvbuf`.
    recvbuf : buffer, optional
        size * n elements.  Significant only at the root, where None allocates an array of shape
        ``(size, *sendbuf.shape)``.
    root : int, default 0
        The rank that receives.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.gather`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array at the root; None elsewhere.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("gather", sendbuf, recvbuf, None, root, comm, algorithm)


def reduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    root: int = 0,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Reduce | None = None,
) -> Any:
    """Reduce: combine `sendbuf` of all ranks, element by element, in `recvbuf` at the root.

    Parameters
    ----------
    sendbuf : buffer
        n elements.  MPI.IN_PLACE at the root: its input is in `recvbuf`.
    recvbuf : buffer, optional
        n elements.  Significant only at the root, where None allocates an array of the shape of `sendbuf`.
    op : MPI.Op or str, default MPI.SUM
        The operation, predefined or user-defined, or its name: "sum", "prod", "min", "max", "land", "lor", "lxor",
        "band", "bor", "bxor", "minloc", "maxloc", "avg" or "exact_sum".
    root : int, default 0
        The rank that receives the result.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.reduce`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array at the root; None elsewhere.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.

    Notes
    -----
    "minloc" and "maxloc" take structured dtypes of a value and an index.  "min", "max", "minloc" and "maxloc" return
    NaN if an element of any rank is NaN; "minloc" and "maxloc" with the smallest index of a NaN.  "avg" divides the sum
    by the number of ranks; it is defined for floating-point and complex dtypes.  "exact_sum" rounds the sum once; it is
    defined for single and double precision, and runs as an all-to-all of blocks before the results are gathered, whose
    algorithms are those that can be named.

    A user-defined operation is called with any number of elements, because algorithms cut vectors, as MPI does.  If it
    works on groups of numbers, for example on matrices, pass ``[sendbuf, datatype]`` with a contiguous datatype, for
    example ``MPI.DOUBLE.Create_contiguous(4)``: its elements stay whole.  `recvbuf` is then an array,
    ``[recvbuf, datatype]`` or None.
    """
    return run("reduce", sendbuf, recvbuf, op, root, comm, algorithm)


def allgather(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Comm | None = None, algorithm: names.Allgather | None = None
) -> Any:
    """All-gather: receive `sendbuf` of rank r as block r of `recvbuf` on all ranks.

    Parameters
    ----------
    sendbuf : buffer
        n elements.  MPI.IN_PLACE: the block of this rank is already in `recvbuf`.
    recvbuf : buffer, optional
        size * n elements; None allocates an array of shape ``(size, *sendbuf.shape)``.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.allgather`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("allgather", sendbuf, recvbuf, None, 0, comm, algorithm)


def allreduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Allreduce | None = None,
) -> Any:
    """All-reduce: combine `sendbuf` of all ranks, element by element, in `recvbuf` on all ranks.

    Parameters
    ----------
    sendbuf : buffer or list of buffers
        n elements.  MPI.IN_PLACE: the input is in `recvbuf`.  The arrays of a list have one dtype and are sent
        together, in one message per round.
    recvbuf : buffer or list of buffers, optional
        n elements; None allocates an array of the shape of `sendbuf`.  If `sendbuf` is a list, `recvbuf` is a list of
        the same length, or None to overwrite the arrays of `sendbuf`.
    op : MPI.Op or str, default MPI.SUM
        The operation; see `reduce`.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.allreduce`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array or list of arrays
        `recvbuf`, the allocated array, or the list `sendbuf` if it was overwritten.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.

    Notes
    -----
    All ranks get the same result, bit for bit.  With "native", this depends on the MPI library.
    """
    return run("allreduce", sendbuf, recvbuf, op, 0, comm, algorithm)


def reduce_scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    recvcounts: Sequence[int] | None = None,
    comm: MPI.Comm | None = None,
    algorithm: names.ReduceScatter | None = None,
) -> Any:
    """Reduce-scatter: combine `sendbuf` of all ranks, element by element; rank r receives block r of the result.

    Parameters
    ----------
    sendbuf : buffer
        size * n elements.  MPI.IN_PLACE: the input is in `recvbuf`, and its first n elements receive the block.
    recvbuf : buffer, optional
        n elements; size * n with MPI.IN_PLACE.  None allocates an array with the shape that `scatter` gives it, or
        a flat one with `recvcounts`.
    op : MPI.Op or str, default MPI.SUM
        The operation; see `reduce`.
    recvcounts : sequence of int, optional
        The number of elements of each block, the same on all ranks; by default, all blocks have n elements.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.reduce_scatter`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        The block: `recvbuf`, its first elements with MPI.IN_PLACE, or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("reduce_scatter", sendbuf, recvbuf, op, 0, comm, algorithm, recvcounts)


def alltoall(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Comm | None = None, algorithm: names.Alltoall | None = None
) -> Any:
    """All-to-all: receive block j of `sendbuf` of rank i as block i of `recvbuf` of rank j.

    Parameters
    ----------
    sendbuf : buffer
        size * n elements.  MPI.IN_PLACE: the blocks in `recvbuf` are sent, then overwritten.
    recvbuf : buffer, optional
        size * n elements; None allocates an array of the shape of `sendbuf`.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.alltoall`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("alltoall", sendbuf, recvbuf, None, 0, comm, algorithm)


def scan(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Scan | None = None,
) -> Any:
    """Scan: combine `sendbuf` of ranks 0 to r, in rank order, in `recvbuf` of rank r.

    Parameters
    ----------
    sendbuf : buffer
        n elements.  MPI.IN_PLACE: the input is in `recvbuf`.
    recvbuf : buffer, optional
        n elements; None allocates an array of the shape of `sendbuf`.
    op : MPI.Op or str, default MPI.SUM
        The operation; see `reduce`.  "avg" is not allowed.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.scan`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("scan", sendbuf, recvbuf, op, 0, comm, algorithm)


def exscan(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | OpName = MPI.SUM,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Exscan | None = None,
) -> Any:
    """Exclusive scan: combine `sendbuf` of ranks 0 to r-1, in rank order, in `recvbuf` of rank r.

    Parameters
    ----------
    sendbuf : buffer
        n elements.  MPI.IN_PLACE: the input is in `recvbuf`.
    recvbuf : buffer, optional
        n elements; not modified on rank 0.  None allocates an array of the shape of `sendbuf`, except on rank 0.
    op : MPI.Op or str, default MPI.SUM
        The operation; see `reduce`.  "avg" is not allowed.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.exscan`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array; None on rank 0 if `recvbuf` is None.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("exscan", sendbuf, recvbuf, op, 0, comm, algorithm)


def scatterv(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Scatterv | None = None,
) -> Any:
    """Scatter blocks of different lengths: send block r of `sendbuf` at the root to rank r.

    Parameters
    ----------
    sendbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``, as in mpi4py, with a count
        and a displacement in elements for each rank.  Without displacements, the blocks are contiguous.  Significant
        only at the root; None elsewhere.
    recvbuf : buffer, optional
        As many elements as the block of this rank.  At the root, None allocates an array, and MPI.IN_PLACE leaves the
        block in `sendbuf`.  The other ranks must pass a buffer.
    root : int, default 0
        The rank that sends.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.scatterv`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        `recvbuf` or the allocated array; None at the root with MPI.IN_PLACE.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("scatterv", sendbuf, recvbuf, None, root, comm, algorithm, None, read_varying)


def gatherv(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Comm | None = None,
    algorithm: names.Gatherv | None = None,
) -> Any:
    """Gather blocks of different lengths: receive `sendbuf` of rank r as block r of `recvbuf` at the root.

    Parameters
    ----------
    sendbuf : buffer
        The block of this rank.  MPI.IN_PLACE at the root: its block is already in `recvbuf`.
    recvbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``; see `scatterv`.
        ``[None, counts]`` allocates the array.  Blocks must not overlap.  Significant only at the root.
    root : int, default 0
        The rank that receives.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.gatherv`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        The receive buffer or the allocated array at the root; None elsewhere.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("gatherv", sendbuf, recvbuf, None, root, comm, algorithm, None, read_varying)


def allgatherv(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Comm | None = None, algorithm: names.Allgatherv | None = None
) -> Any:
    """All-gather blocks of different lengths: receive `sendbuf` of rank r as block r of `recvbuf` on all ranks.

    Parameters
    ----------
    sendbuf : buffer
        The block of this rank.  MPI.IN_PLACE: the block is already in `recvbuf`.
    recvbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``; see `scatterv`.
        ``[None, counts]`` allocates the array.  Blocks must not overlap.  The counts are the same on all ranks.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.allgatherv`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("allgatherv", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def alltoallv(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Comm | None = None, algorithm: names.Alltoallv | None = None
) -> Any:
    """All-to-all with blocks of different lengths: receive block j of `sendbuf` of rank i as block i on rank j.

    Parameters
    ----------
    sendbuf : buffer specification
        ``[buf, counts]``, ``[buf, (counts, displs)]`` or ``[buf, counts, displs, type]``; see `scatterv`.
        MPI.IN_PLACE: the blocks in `recvbuf` are sent, then overwritten.
    recvbuf : buffer specification
        The same; ``[None, counts]`` allocates the array.  Blocks must not overlap.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.alltoallv`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        The receive buffer or the allocated array.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("alltoallv", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def alltoallw(
    sendbuf: Any, recvbuf: Any, *, comm: MPI.Comm | None = None, algorithm: names.Alltoallw | None = None
) -> Any:
    """All-to-all with blocks of different lengths and datatypes.

    Parameters
    ----------
    sendbuf : buffer specification
        ``[buf, counts, displs, types]`` with displacements in bytes, or ``[buf, types]`` with one element of each
        datatype at the beginning of `buf`.  MPI.IN_PLACE: the blocks in `recvbuf` are sent, then overwritten.
    recvbuf : buffer specification
        The same.  Blocks must not overlap.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.alltoallw`, or "native"; by default, pycoll chooses one.

    Returns
    -------
    array
        The receive buffer.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; `pycoll.api.collectives` lists them.
    """
    return run("alltoallw", sendbuf, recvbuf, None, 0, comm, algorithm, None, read_varying)


def barrier(*, comm: MPI.Comm | None = None, algorithm: names.Barrier | None = None) -> None:
    """Barrier: return after all ranks have called.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    algorithm : str, optional
        An algorithm of `pycoll.primitives.barrier`, or "native"; by default, pycoll chooses one.

    Raises
    ------
    ValueError
        If the algorithm is unknown.
    """
    run("barrier", None, None, None, 0, comm, algorithm)


def run(
    name: str,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    root: int,
    comm: MPI.Comm | None,
    algorithm: str | None,
    recvcounts: Any = None,
    read: Reader = check_buffers,
) -> Any:
    """Run a collective by the plan for calls of its kind; if there is none, check its arguments."""
    comm = MPI.COMM_WORLD if comm is None else comm
    number = NUMBERS[name, recvcounts is not None]
    result = front_of(comm).call(number, algorithm, sendbuf, recvbuf, op, root, recvcounts)
    if result is not core.MISSED:
        return result
    return run_uncached(Call(name, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts, read))


def front_of(comm: Any) -> core.Front | core.NoFront:
    """The plans of a communicator; none of a new or closed one, or if this is not a communicator."""
    try:
        return channels[comm.handle].front
    except (AttributeError, KeyError, TypeError):
        return NO_FRONT


@interruptions_delayed()  # all this belongs together
def run_uncached(call: Call) -> Any:
    """Check the arguments and run; a communicator of `pycoll.local` does that itself."""
    itself = getattr(call.comm, "run_call", None)
    return itself(call) if itself else dispatch.run(call, attach(call.comm))


watch(sys.modules[__name__], PRIMITIVES)
