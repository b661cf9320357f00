"""The copy limit: the reads and writes of a collective on registered buffers, by NumPy alone and unsynchronized.

All ranks do their share at once, each in pieces that stay in cache.  No collective between processes on one host that
combines or copies with NumPy can be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from pycoll.arguments.memory import address, array_at
from pycoll.arguments.ops import resolve
from pycoll.runtime.attach import attach
from pycoll.tune.benchmark_case import Call, Case

PIECE = 1 << 18  # bytes

Arrays = list[np.ndarray]
Combine = Callable[[np.ndarray, np.ndarray, np.ndarray], object]


def call(case: Case) -> Call:
    """Return a call that does the share of this rank; the buffers of `case` must be registered."""
    registered = attach(case.comm).registered
    mine = [
        (registered.code(address(array), array.nbytes), array.size) if array is not None else (-1, 0)
        for array in (case.send, case.ours)
    ]
    inputs, outputs = (
        [_of_rank(case, rank, *pair) for rank, pair in enumerate(column)] for column in zip(*case.comm.allgather(mine))
    )
    if case.in_place or case.primitive == "bcast":
        inputs = outputs
    combine = resolve(case.op).combine
    return partial(_LIMITS[case.primitive], case.comm.rank, case.comm.size, case.root, inputs, outputs, combine)


def _of_rank(case: Case, rank: int, code: int, count: int) -> np.ndarray:
    if code < 0:
        return np.empty(0, case.dtype)
    start = attach(case.comm).registered.address(rank, code)
    return array_at(start, count * case.dtype.itemsize, case.dtype)


def _pieces(start: int, end: int, itemsize: int) -> Iterator[slice]:
    step = PIECE // itemsize
    return (slice(at, min(at + step, end)) for at in range(start, end, step))


def _share(rank: int, size: int, array: np.ndarray) -> Iterator[slice]:
    """Yield the pieces of the share of this rank."""
    return _pieces(array.size * rank // size, array.size * (rank + 1) // size, array.itemsize)


def _bcast(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    count = inputs[root].size
    cut = count - count // size  # the root copies the rest
    for other in range(size):
        if rank == other != root:
            np.copyto(outputs[other][:cut], inputs[root][:cut])
        elif rank == root != other:
            np.copyto(outputs[other][cut:], inputs[root][cut:])


def _scatter(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    np.copyto(outputs[rank], inputs[root].reshape(size, -1)[rank])


def _gather(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    np.copyto(outputs[root].reshape(size, -1)[rank], inputs[rank])


def _allgather(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    blocks = outputs[rank].reshape(size, -1)
    for other in range(size):
        if inputs[rank] is not outputs[rank]:
            np.copyto(blocks[other], inputs[other])
        elif other != rank:
            np.copyto(blocks[other], outputs[other].reshape(size, -1)[other])


def _alltoall(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    for other in range(size):
        np.copyto(outputs[rank].reshape(size, -1)[other], inputs[other].reshape(size, -1)[rank])


def _combined(inputs: Arrays, out: np.ndarray, part: slice, combine: Combine) -> None:
    combine(inputs[0][part], inputs[1][part], out)
    for other in inputs[2:]:
        combine(out, other[part], out)


def _reduce_scatter(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    blocks = [array.reshape(size, -1) for array in inputs]
    if inputs is not outputs:
        for part in _pieces(0, outputs[rank].size, outputs[rank].itemsize):
            _combined([one[rank] for one in blocks], outputs[rank][part], part, combine)
    else:  # results replace block 0: so each rank combines a part of every block
        for owner in range(size):
            for part in _share(rank, size, blocks[owner][0]):
                _combined([one[owner] for one in blocks], blocks[owner][0][part], part, combine)


def _reduce(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    for part in _share(rank, size, inputs[rank]):
        _combined(inputs, outputs[root][part], part, combine)


def _allreduce(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    for part in _share(rank, size, inputs[rank]):
        result = outputs[rank][part]
        _combined([*inputs[rank:], *inputs[:rank]], result, part, combine)  # in place, the result replaces the first
        for other in range(size):
            if other != rank:
                np.copyto(outputs[other][part], result)


def _scan(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    for part in _share(rank, size, inputs[rank]):
        np.copyto(outputs[0][part], inputs[0][part])
        for other in range(1, size):
            combine(outputs[other - 1][part], inputs[other][part], outputs[other][part])


def _exscan(rank: int, size: int, root: int, inputs: Arrays, outputs: Arrays, combine: Combine) -> None:
    for part in _share(rank, size, inputs[rank]):
        np.copyto(outputs[1][part], inputs[0][part])
        for other in range(2, size):
            combine(outputs[other - 1][part], inputs[other - 1][part], outputs[other][part])


_LIMITS = {
    "bcast": _bcast,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "scan": _scan,
    "exscan": _exscan,
}
MEASURED = tuple(_LIMITS)
