"""Scan and exclusive scan, compared with a NumPy reduction of the vectors in rank order."""

from functools import reduce

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.base.settings import configure
from tests.mpi.native import KINDS, MANY, RANK, SIZE, WORLD
from tests.mpi.varying import compose

pytestmark = pytest.mark.mpi

PAIRS = [(name, algorithm) for name in ("scan", "exscan") for algorithm in pycoll.algorithms(name)]
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
UFUNCS |= {"l" + name: getattr(np, "logical_" + name) for name in ("and", "or", "xor")}
UFUNCS |= {"b" + name: getattr(np, "bitwise_" + name) for name in ("and", "or", "xor")}
DTYPES = ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "g", "F", "D", "?"]
DTYPES = ["u2", "f2", "D", "?"] if MANY else DTYPES


@pytest.fixture(autouse=True)
def short_segments():
    before = settings.SEGMENT, settings.PIPELINE
    configure(segment=48, pipeline=96)
    yield
    configure(segment=before[0], pipeline=before[1])


def drawn(dtype, shape=101, seed=0):
    """Return small whole numbers; their sums and products are exact in every dtype."""
    return np.random.default_rng([seed, RANK]).integers(0, 3, shape).astype(dtype)


def expected_of(primitive, send, combine, vectors=None):
    """Return the expected result of this rank; None if it receives nothing."""
    before = (vectors or WORLD.allgather(send))[: RANK + (primitive == "scan")]
    return reduce(combine, before).astype(send.dtype, copy=False) if before else None


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_dtype_and_operation(primitive, algorithm):
    function = getattr(pycoll, primitive)
    for dtype in DTYPES:
        send = drawn(dtype)
        vectors = WORLD.allgather(send)
        for op in (name for name in UFUNCS if np.dtype(dtype).kind in KINDS[name]):
            expected = expected_of(primitive, send, UFUNCS[op], vectors)
            before, recv, inside = send.copy(), np.full_like(send, 1), send.copy()
            assert function(send, recv, op, algorithm=algorithm) is recv
            assert function(MPI.IN_PLACE, inside, op, algorithm=algorithm) is inside
            allocated = function(send, op=getattr(MPI, op.upper()), algorithm=algorithm)
            np.testing.assert_array_equal(send, before)
            if expected is None:
                assert allocated is None
                np.testing.assert_array_equal(recv, np.full_like(send, 1))
                np.testing.assert_array_equal(inside, send)
            else:
                for result in (recv, inside, allocated):
                    np.testing.assert_array_equal(result, expected, f"{op} {dtype}", strict=True)


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_sizes_and_segments(primitive, algorithm):
    for count in (SIZE, 1000) if MANY else (0, 1, SIZE, 1000):
        for segment in (400,) if MANY else (8, 400, 1 << 16):
            configure(segment=segment, pipeline=segment)
            send = drawn("i8", count, seed=count)
            expected = expected_of(primitive, send, np.add)
            for _ in range(2):
                result = getattr(pycoll, primitive)(send, np.empty_like(send), algorithm=algorithm)
                assert expected is None or (result == expected).all()


@pytest.mark.parametrize("primitive, algorithm", [*PAIRS, ("scan", None), ("exscan", None)])
def test_operations_of_the_user_keep_rank_order(primitive, algorithm):
    op = MPI.Op.Create(compose, commute=False)
    maps = np.random.default_rng(RANK).integers(-3, 4, (60, 2)).astype("i4")
    function, packed = getattr(pycoll, primitive), maps.view("i8").reshape(-1)

    def combine(first, then):
        return np.stack([then[:, 0] * first[:, 0], then[:, 0] * first[:, 1] + then[:, 1]], axis=1)

    expected = expected_of(primitive, maps, combine)
    inside = packed.copy()
    results = function(packed, op=op, algorithm=algorithm), function(MPI.IN_PLACE, inside, op, algorithm=algorithm)
    assert results[1] is inside
    if expected is None:
        assert results[0] is None
        np.testing.assert_array_equal(inside, packed)
    else:
        for result in results:
            np.testing.assert_array_equal(result.view("i4").reshape(-1, 2), expected)
    op.Free()


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_above_every_eager_limit(primitive, algorithm):
    configure(segment=1 << 20, pipeline=1 << 20)
    send = drawn("i8", 1 << (17 if MANY else 19))
    expected = expected_of(primitive, send, np.add)
    for inside in (False, True):
        arguments = (MPI.IN_PLACE, send.copy()) if inside else (send,)
        result = getattr(pycoll, primitive)(*arguments, algorithm=algorithm)
        assert expected is None or (result == expected).all()


def test_shapes_and_gaps():
    grid = drawn("f8", (4, 6))
    for part in (grid, grid.T, grid[::2, 1::3]):
        np.testing.assert_array_equal(pycoll.scan(part), expected_of("scan", part, np.add), strict=True)
        result, expected = pycoll.exscan(part), expected_of("exscan", part, np.add)
        assert result is expected is None if RANK == 0 else (result == expected).all()
    assert pycoll.scan(np.float64(2)) == 2 * (RANK + 1)


def test_rank_0_of_exscan():
    recv = np.full(3, -1.0)
    for _ in range(2):
        assert pycoll.exscan(np.ones(3), recv) is recv
        np.testing.assert_array_equal(recv, [RANK or -1] * 3)
    assert pycoll.exscan(np.ones(3), recv if RANK else None) is (recv if RANK else None)


def test_floating_point_errors_leave_nobody_waiting():
    values = np.array([np.inf if RANK == 0 else -np.inf, 1.0])
    for primitive, algorithm in PAIRS:
        result = np.ones(2)
        try:
            with np.errstate(all="raise"):
                getattr(pycoll, primitive)(values, result, algorithm=algorithm)
        except FloatingPointError:
            assert RANK > 0
        assert result[1] == (RANK + 1 if primitive == "scan" else max(1, RANK))


@pytest.mark.parametrize("primitive", ["scan", "exscan"])
def test_what_is_refused(primitive):
    function, two = getattr(pycoll, primitive), np.ones(2)
    for error, pattern, arguments in (
        (ValueError, f"AVG.*{primitive}", (two, None, "avg")),
        (TypeError, "BAND is not defined for dtype float64", (two, None, "band")),
        (TypeError, "sendbuf=MPI.IN_PLACE requires a receive buffer", (MPI.IN_PLACE,)),
        (TypeError, "sendbuf must be an array", (None, two)),
    ):
        with pytest.raises(error, match=pattern):
            function(*arguments)
    for error, pattern, recv in (
        (TypeError, "sendbuf has dtype float64, recvbuf has dtype float32", np.empty(2, "f4")),
        (ValueError, "recvbuf has 3 elements", np.empty(3)),
    ):
        with pytest.raises(error, match=pattern):
            function(two, recv)
    np.testing.assert_array_equal(pycoll.scan(two), two * (RANK + 1))
