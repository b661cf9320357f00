"""Native MPI collectives on the same input, and comparison with a bound for floating-point rounding."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from pycoll.schedule.registry import PRIMITIVES

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
MANY = SIZE > 2  # tests run fewer cases, because more ranks than cores are slow

OPERATIONS = ["sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "avg"]
KINDS = {"sum": "iufc", "prod": "iufc", "min": "iuf", "max": "iuf", "avg": "fc"}
KINDS |= dict.fromkeys(("land", "lor", "lxor"), "iub") | dict.fromkeys(("band", "bor", "bxor"), "iu")
HANDLES = {name: getattr(MPI, name.upper()) for name in OPERATIONS if name != "avg"} | {"avg": MPI.SUM}


def inputs(primitive: str, count: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return the send buffer of this rank: `count` elements, or `count` elements for each rank."""
    total = count * (SIZE if PRIMITIVES[primitive].takes_all else 1)
    numbers = np.random.default_rng([seed, RANK])
    kind = np.dtype(dtype).kind
    if kind == "b":
        return numbers.integers(0, 2, total).astype(bool)
    if dtype in ("int8", "uint8"):  # avoid overflow: sums of Open MPI saturate where C and NumPy wrap around
        return numbers.integers(0, 2, total).astype(dtype)
    if kind in "iu":
        return numbers.integers(0, 100, total).astype(dtype)
    values = numbers.uniform(-2, 2, total)
    return (values + 1j * numbers.uniform(-2, 2, total) if kind == "c" else values).astype(dtype)


def native(primitive: str, send: np.ndarray, op: str | None = None, root: int = 0) -> np.ndarray | None:
    """Return the result of the native MPI collective; if it only moves data, it sends bytes to support any dtype."""
    if PRIMITIVES[primitive].reduces:
        result = _native_reduction(primitive, send, HANDLES[op], root)
        return result / np.array(SIZE, send.dtype) if op == "avg" and result is not None else result
    data = send.view(np.uint8)
    if primitive == "bcast":
        result = data.copy()
        WORLD.Bcast(result, root)
        return result.view(send.dtype)
    length = {"scatter": data.size // SIZE, "alltoall": data.size}.get(primitive, data.size * SIZE)
    result = np.empty(length, np.uint8)
    at_root = RANK == root
    if primitive == "scatter":
        WORLD.Scatter(data if at_root else None, result, root)
    elif primitive == "gather":
        WORLD.Gather(data, result if at_root else None, root)
    else:
        getattr(WORLD, primitive.capitalize())(data, result)
    return None if primitive == "gather" and not at_root else result.view(send.dtype)


def _native_reduction(primitive: str, send: np.ndarray, op: MPI.Op, root: int) -> np.ndarray | None:
    if primitive == "reduce":
        result = np.empty_like(send) if RANK == root else None
        WORLD.Reduce(send, result, op, root)
    elif primitive == "allreduce":
        result = np.empty_like(send)
        WORLD.Allreduce(send, result, op)
    elif primitive in ("scan", "exscan"):
        result = np.empty_like(send) if primitive == "scan" or RANK else None
        getattr(WORLD, primitive.capitalize())(send, np.empty_like(send) if result is None else result, op)
    else:
        result = np.empty(send.size // SIZE, send.dtype)
        WORLD.Reduce_scatter_block(send, result, op)
    return result


def assert_same(ours: np.ndarray, theirs: np.ndarray, primitive: str, send: np.ndarray, op: str | None) -> None:
    """Assert that the results are equal, except for rounding in floating-point sums and products.

    Both results are within (p - 1) roundings of the exact one.  The error is relative to the sum of magnitudes for
    sums and to the result for products, with a factor for the four multiplications in a complex product.
    """
    assert ours.dtype == theirs.dtype and ours.size == theirs.size
    ours, theirs = ours.reshape(-1), theirs.reshape(-1)
    if send.dtype.kind in "fc" and op in ("sum", "avg", "prod"):
        name = primitive if primitive in ("reduce_scatter", "scan", "exscan") else "allreduce"
        magnitude = _native_reduction(name, np.abs(send), MPI.PROD if op == "prod" else MPI.SUM, 0)
        magnitude = 0.0 if magnitude is None else magnitude  # on rank 0 of an exclusive scan
        bound = 2 * 4 * SIZE * np.finfo(send.dtype).eps * magnitude / (SIZE if op == "avg" else 1)
        assert np.all(np.abs(ours - theirs) <= bound + np.finfo(send.dtype).tiny)
    else:
        np.testing.assert_array_equal(ours, theirs)
