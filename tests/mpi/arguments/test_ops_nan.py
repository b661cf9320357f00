"""NaN in minima and maxima: every algorithm of pycoll returns it, with the smallest index of a NaN."""

import functools

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import NATIVE, PRIMITIVES, algorithms_of
from tests.mpi.native import MANY, RANK, SIZE
from tests.mpi.varying import cut

pytestmark = pytest.mark.mpi

REDUCING = [name for name, primitive in PRIMITIVES.items() if primitive.reduces]
PAIR = np.dtype([("value", "f8"), ("index", "i4")], align=True)


def of_rank(rank, count):
    """The vector of a rank: NaN at every place on some of the ranks, and in all combinations if there are enough."""
    numbers = np.random.default_rng([36, rank, count])
    pairs = np.zeros(count, PAIR)
    pairs["value"] = numbers.choice([-1, 0, 1, np.nan], count)
    pairs["value"][rank::SIZE] = np.nan
    pairs["index"] = numbers.integers(-3, 4, count)
    return pairs


def best_pair(op, pairs):
    """NaN comes first, then the best value, then the smallest index."""
    sign = 1 if op == "minloc" else -1
    return min(
        pairs, key=lambda pair: (not np.isnan(pair["value"]), np.nan_to_num(sign * pair["value"]), pair["index"])
    )


def combined(op, ranks, count):
    vectors = [of_rank(rank, count) for rank in ranks]
    if op in ("min", "max"):
        ufunc = np.minimum if op == "min" else np.maximum
        return functools.reduce(ufunc, [one["value"] for one in vectors])
    return np.array([best_pair(op, column) for column in zip(*vectors)], PAIR)


def check(result, expected, text):
    for field in ("value", "index") if expected.dtype.names else (...,):
        np.testing.assert_array_equal(result[field], expected[field], text)


@pytest.mark.parametrize("op", ["min", "max", "minloc", "maxloc"])
@pytest.mark.parametrize("primitive", REDUCING)
def test_nan(primitive, op):
    for length in (3,) if MANY else (1, 5, 40):
        count = length * SIZE
        send = of_rank(RANK, count)
        ranks = {"scan": range(RANK + 1), "exscan": range(RANK)}.get(primitive, range(SIZE))
        expected = combined(op, ranks, count) if ranks else None
        if primitive == "reduce_scatter":
            expected = expected[RANK * length : (RANK + 1) * length]
        with cut(3 * PAIR.itemsize):
            for algorithm in [None, *algorithms_of(primitive)]:
                if algorithm != NATIVE:
                    given = send if op.endswith("loc") else send["value"].copy()
                    result = getattr(pycoll, primitive)(given, op=op, algorithm=algorithm)
                    if result is not None:
                        check(result, expected, f"{primitive} by {algorithm} of {length}")


@pytest.mark.parametrize("op, handle", [("min", MPI.MIN), ("max", MPI.MAX)])
def test_methods_of_the_communicator(op, handle):
    """Short calls too do not go to MPI, whose result depends on the order."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    for _ in range(3):
        values, result = of_rank(RANK, 4)["value"].copy(), np.empty(4)
        comm.Allreduce(values, result, handle)
        np.testing.assert_array_equal(result, combined(op, range(SIZE), 4))
        comm.Iallreduce([values, MPI.DOUBLE], [result, MPI.DOUBLE], handle).Wait()
        np.testing.assert_array_equal(result, combined(op, range(SIZE), 4))
