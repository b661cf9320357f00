"""The collectives: check arguments, choose an algorithm, run it.

Buffers are NumPy arrays, or anything with the buffer protocol or ``__array_interface__``.  A send buffer
with gaps is packed; a receive buffer must be C-contiguous and writeable, and not overlap the send buffer.
All ranks of the communicator call the same function with matching arguments.  ``comm=None`` is COMM_WORLD,
``algorithm=None`` lets pycoll choose (see `pycoll.selection`).

What a rank can see to be wrong raises an error there, before anything is sent: TypeError for a wrong type, for
wrong or unequal dtypes, or for an operation that the dtype does not have; ValueError for sizes that do not
fit, buffers that are read-only, not contiguous or overlapping, a root out of range, an unknown algorithm or
operation.

Repeated calls with the same array objects skip most of these checks: their dtype and whether they are
writeable are looked at again, but strides that were assigned to between two calls (which NumPy deprecates)
are not seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from . import engine
from .buffers import IN_PLACE, Arguments, arrange
from .layout import Call, compiled
from .ops import Operation, resolve
from .schedule import PRIMITIVES, Algorithm, algorithms_of, find
from .selection import choose


def algorithms(primitive: str) -> list[str]:
    """The names of a primitive's algorithms, as `algorithm=` takes them; ValueError if there is no such primitive."""
    return list(algorithms_of(primitive))


def bcast(buf: Any, root: int = 0, *, comm: MPI.Intracomm | None = None, algorithm: str | None = None) -> np.ndarray:
    """Broadcast: every rank's `buf` becomes the root's.

    `buf` has the same number of elements and the same dtype on all ranks, in any shape.  Returns `buf`.
    Raises TypeError for a wrong type, ValueError for a buffer that cannot be written, a root out of range
    or an unknown algorithm.  Algorithms: see `pycoll.primitives.bcast`.
    """
    return _collective("bcast", None, buf, None, root, comm, algorithm)


def scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str | None = None,
) -> np.ndarray | None:
    """Scatter: block r of the root's `sendbuf` goes to rank r's `recvbuf`.

    `sendbuf` is significant only at the root (None elsewhere): size * n elements, the blocks one after the other.
    `recvbuf` has n elements; it must be given at the non-roots.  At the root None allocates it: of shape
    ``sendbuf.shape[1:]`` if the first of several axes has length size, else with the first axis divided by
    size, else flat; MPI.IN_PLACE leaves the root's block where it is and returns None.  Returns `recvbuf`.
    Raises TypeError for wrong or unequal dtypes, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.scatter`.
    """
    return _collective("scatter", sendbuf, recvbuf, None, root, comm, algorithm)


def gather(
    sendbuf: Any,
    recvbuf: Any = None,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str | None = None,
) -> np.ndarray | None:
    """Gather: rank r's `sendbuf` becomes block r of the root's `recvbuf`.

    `sendbuf` has n elements on every rank; MPI.IN_PLACE at the root says that its block is in `recvbuf`
    already.  `recvbuf` is significant only at the root: size * n elements; None allocates it with shape
    ``(size, *sendbuf.shape)``.  Returns `recvbuf` at the root, None elsewhere.  Raises TypeError for wrong
    or unequal dtypes, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.gather`.
    """
    return _collective("gather", sendbuf, recvbuf, None, root, comm, algorithm)


def reduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | str = MPI.SUM,
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str | None = None,
) -> np.ndarray | None:
    """Reduce: the ranks' `sendbuf` are combined element by element into the root's `recvbuf`.

    `sendbuf` has n elements on every rank; MPI.IN_PLACE at the root says that its input is in `recvbuf`.
    `recvbuf` is significant only at the root: n elements; None allocates it with sendbuf's shape.  `op` is an
    `MPI.Op` or a name: "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "avg"; a
    user-defined operation works on any number of elements, since vectors are cut.
    Returns `recvbuf` at the root, None elsewhere.  Raises TypeError for wrong or unequal dtypes and for an
    operation that the dtype does not have, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.reduce`.
    """
    return _collective("reduce", sendbuf, recvbuf, op, root, comm, algorithm)


def allgather(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: str | None = None
) -> np.ndarray:
    """All-gather: rank r's `sendbuf` becomes block r of every rank's `recvbuf`.

    `sendbuf` has n elements; MPI.IN_PLACE says that the rank's block is in `recvbuf` already.  `recvbuf`
    has size * n; None allocates it with shape ``(size, *sendbuf.shape)``.  Returns `recvbuf`.  Raises
    TypeError for wrong or unequal dtypes, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.allgather`.
    """
    return _collective("allgather", sendbuf, recvbuf, None, 0, comm, algorithm)


def allreduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | str = MPI.SUM,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str | None = None,
) -> np.ndarray:
    """All-reduce: the ranks' `sendbuf` are combined element by element into every rank's `recvbuf`.

    `sendbuf` has n elements; MPI.IN_PLACE says that the input is in `recvbuf`.  `recvbuf` has n elements;
    None allocates it with sendbuf's shape.  `op` as in `reduce`.  Returns `recvbuf`, which ends with the
    same bits on every rank.  Raises TypeError for wrong or unequal dtypes and for an operation that the
    dtype does not have, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.allreduce`.
    """
    return _collective("allreduce", sendbuf, recvbuf, op, 0, comm, algorithm)


def reduce_scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    op: MPI.Op | str = MPI.SUM,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str | None = None,
) -> np.ndarray:
    """Reduce-scatter in equal blocks: the ranks' `sendbuf` are combined, and rank r gets block r.

    `sendbuf` has size * n elements; MPI.IN_PLACE says that the input is in `recvbuf`, whose first n
    elements then hold the block.  Otherwise `recvbuf` has n elements; None allocates it, with the shape that `scatter`
    would give it.  `op` as in `reduce`.  Returns the block.  Raises TypeError for wrong or unequal dtypes
    and for an operation that the dtype does not have, ValueError for sizes that do not fit.
    Algorithms: see `pycoll.primitives.reduce_scatter`.
    """
    return _collective("reduce_scatter", sendbuf, recvbuf, op, 0, comm, algorithm)


def alltoall(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: str | None = None
) -> np.ndarray:
    """All-to-all: block j of rank i's `sendbuf` becomes block i of rank j's `recvbuf`.

    Both have size * n elements; with sendbuf=MPI.IN_PLACE the blocks of `recvbuf` are replaced; with
    recvbuf=None it is allocated with sendbuf's shape.  Returns `recvbuf`.  Raises TypeError for wrong or
    unequal dtypes, ValueError for sizes that do not fit.  Algorithms: see `pycoll.primitives.alltoall`.
    """
    return _collective("alltoall", sendbuf, recvbuf, None, 0, comm, algorithm)


def barrier(*, comm: MPI.Intracomm | None = None, algorithm: str | None = None) -> None:
    """Barrier: no rank returns before every rank has called.

    Raises ValueError for an unknown algorithm.  Algorithms: see `pycoll.primitives.barrier`.
    """
    _collective("barrier", _EMPTY, _EMPTY, None, 0, comm, algorithm)


_EMPTY = np.empty(0, np.uint8)


def _collective(
    primitive: str, sendbuf: Any, recvbuf: Any, op: Any, root: int, comm: MPI.Intracomm | None, algorithm: str | None
) -> Any:
    """Run the program bound to these very buffers, if there is one; else check the arguments first."""
    comm = MPI.COMM_WORLD if comm is None else comm
    key = (primitive, id(sendbuf), id(recvbuf), id(op), root, algorithm)
    try:
        calls, send, recv, dtype, _ = engine.channels[comm.handle].shortcuts[key]
        known = (
            send() is sendbuf
            and recv() is recvbuf
            # the same arrays, but are they still what they were?
            and (recvbuf is None or (recvbuf.flags.writeable and recvbuf.dtype is dtype))
            and (sendbuf is None or sendbuf is IN_PLACE or sendbuf.dtype is dtype)
        )
    except (AttributeError, KeyError, TypeError):  # a new call, a closed communicator, arguments of wrong types
        known = False
    result = recvbuf
    if not known:
        calls, result = _prepare(primitive, sendbuf, recvbuf, op, root, comm, algorithm, key)
    steps = iter(calls)
    try:
        for step in steps:
            step()
    except (ArithmeticError, Warning):  # floating-point errors that the caller wants raised: when all is done
        engine.finish(steps)
        raise
    return result


def _prepare(
    name: str, sendbuf: Any, recvbuf: Any, op: Any, root: int, comm: Any, algorithm: str | None, key: tuple
) -> tuple[engine.Calls, Any]:
    """Check the arguments, and bind the program to the buffers if it is not yet; its calls, and the result.

    The next such call will look for the program under `key`, if its result is the very receive buffer given.
    """
    engine.check_communicator(comm)
    primitive, rank, size = PRIMITIVES[name], comm.rank, comm.size
    if primitive.rooted and not (isinstance(root, int | np.integer) and 0 <= root < size):
        raise ValueError(f"root={root!r} is not a rank of the communicator of size {size}")
    arguments = arrange(primitive, sendbuf, recvbuf, rank, size, root)
    operation = resolve(op) if primitive.reduces else None
    if operation:
        operation.check(arguments.dtype)
    chosen = _algorithm(name, algorithm, arguments, size, operation)

    itemsize = arguments.dtype.itemsize
    segments = engine.segments(arguments.count * itemsize) if chosen.pipelined else 1
    call = Call(chosen, rank, size, int(root), arguments.count, itemsize, arguments.in_place, segments, engine.SEGMENT)
    channel = engine.attach(comm)
    bound = channel.bind(compiled(call), arguments, operation)
    if arguments.result is recvbuf and (operation is None or operation.predefined):
        channel.remember(bound, key, arguments, sendbuf, recvbuf, op)
    return bound.calls, arguments.result


def _algorithm(
    primitive: str, name: str | None, arguments: Arguments, size: int, operation: Operation | None
) -> Algorithm:
    commutative = operation is None or operation.commutative
    if name is None:
        return find(primitive, choose(primitive, arguments.count * arguments.dtype.itemsize, size, commutative))
    algorithm = find(primitive, name)
    if not commutative and not algorithm.ordered:
        ordered = ", ".join(other.name for other in algorithms_of(primitive).values() if other.ordered)
        raise ValueError(f"algorithm={name!r} does not keep rank order, which op needs; these do: {ordered}")
    return algorithm
