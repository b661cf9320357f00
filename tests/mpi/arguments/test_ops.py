"""Movement of all NumPy dtypes, reductions of all that support them, pairs, and user-defined operations."""

from functools import partial, reduce

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.api.test_collectives_scan import UFUNCS
from tests.mpi.native import KINDS, MANY, RANK, SIZE, WORLD
from tests.mpi.varying import cut

pytestmark = pytest.mark.mpi

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
NUMBERS = ["?", *INTEGERS, "f2", "f4", "f8", "g", "F", "D", "G"]
OTHERS = ["S5", "U3", "M8[s]", "m8[ms]", "V7", [("x", "f4"), ("y", "S3")], [("a", "i2", (2, 2)), ("b", "?")]]
ML_FLOATS = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
REDUCING = [name for name, p in PRIMITIVES.items() if p.reduces and name not in ("scan", "exscan")]
OPERATIONS = ["sum"] if MANY else ["sum", "prod", "max", "lxor", "bor"]
COUNT = 11  # number of elements, in total or for each rank


def drawn(dtype, count=COUNT, high=3):
    """Return small whole numbers, whose sums and products are exact; for other dtypes, return random bytes."""
    dtype, numbers = np.dtype(dtype), np.random.default_rng([6, RANK])
    if dtype.kind in "biufcUSmM" or "ml_dtypes" in dtype.type.__module__:
        return numbers.integers(0, high, count).astype(dtype)
    return numbers.integers(0, 2, (count, dtype.itemsize)).astype("u1").view(dtype).reshape(count)


def same(ours, theirs):
    """Assert that two arrays are equal bit for bit, since NumPy cannot compare all dtypes."""
    assert ours.dtype == theirs.dtype and ours.size == theirs.size
    assert ours.tobytes() == theirs.tobytes()


def check_moves(dtype):
    send = drawn(dtype)
    vectors = WORLD.allgather(send)
    everything = np.empty(SIZE * COUNT, dtype)
    everything.reshape(SIZE, COUNT)[...] = vectors
    for algorithm in ("naive", "ring"):
        for root in {0, SIZE - 1}:
            same(pycoll.bcast(send.copy(), root, algorithm=algorithm), vectors[root])
            gathered = pycoll.gather(send, root=root, algorithm=algorithm)
            scattered = pycoll.scatter(everything, np.empty(COUNT, dtype), root, algorithm=algorithm)
            same(scattered, send)
            assert (gathered is None) if RANK != root else gathered.dtype == send.dtype
            if RANK == root:
                same(gathered, everything)
        same(pycoll.allgather(send, algorithm=algorithm), everything)
        same(pycoll.alltoall(everything, algorithm=algorithm), np.tile(send, SIZE).astype(dtype))
        same(pycoll.allgatherv(send, [None, [COUNT] * SIZE], algorithm=algorithm), everything)
        inside = np.empty((SIZE, COUNT), dtype)
        inside[RANK] = send
        same(pycoll.allgather(MPI.IN_PLACE, inside, algorithm=algorithm), everything)


@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS], ids=str)
def test_moved(dtype):
    check_moves(np.dtype(dtype))


@pytest.mark.parametrize("name", [*ML_FLOATS, "int4"])
def test_moved_by_ml_dtypes(name):
    check_moves(np.dtype(getattr(pytest.importorskip("ml_dtypes"), name)))


def check_combined(dtype, ops):
    """Compare every algorithm of the reductions with NumPy on the gathered vectors."""
    sends = {n: drawn(dtype, n, high=2 if MANY else 3) for n in (COUNT, COUNT * SIZE)}
    vectors = {n: WORLD.allgather(send) for n, send in sends.items()}
    for op in ops:
        for primitive in REDUCING:
            count = COUNT * SIZE if primitive == "reduce_scatter" else COUNT
            expected = reduce(UFUNCS[op], vectors[count]).astype(dtype)
            if primitive == "reduce_scatter":
                expected = expected[RANK * COUNT : (RANK + 1) * COUNT]
            for algorithm in algorithms_of(primitive):
                result = getattr(pycoll, primitive)(sends[count], op=op, algorithm=algorithm)
                if primitive == "reduce" and RANK:
                    assert result is None
                else:
                    assert result.dtype == dtype
                    np.testing.assert_array_equal(result, expected, f"{primitive}.{algorithm} of {op}")


@pytest.mark.parametrize("dtype", [name for name in NUMBERS if name not in ("i4", "i8", "f4", "f8", "D", "?")])
def test_combined(dtype):
    """Reduce all numeric dtypes except those in `test_collectives`."""
    kind = np.dtype(dtype).kind
    check_combined(np.dtype(dtype), [op for op in OPERATIONS if kind in KINDS[op]])


@pytest.mark.parametrize("name", ML_FLOATS)
def test_combined_by_ml_dtypes(name):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    check_combined(dtype, ["sum", "prod", "min", "max"])
    same(pycoll.scan(np.ones(3, dtype)), np.full(3, RANK + 1).astype(dtype))


@pytest.mark.parametrize("name", ["float16", "longdouble", "bfloat16", "complex64"])
def test_averages(name):
    dtype = np.dtype(name if name != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16)
    send = np.array([RANK, 2 * RANK, 1]).astype(dtype)
    for result in (pycoll.allreduce(send, op="avg"), pycoll.allreduce(MPI.IN_PLACE, send.copy(), op="avg")):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.array([(SIZE - 1) / 2, SIZE - 1, 1]).astype(dtype))


@pytest.mark.parametrize(
    "dtype, ops",
    [
        ("?", ["sum", "prod", "min", "max", "band"]),
        ("f2", ["band", "lor", "minloc"]),
        ("g", ["bxor", "land"]),
        ("D", ["min", "max", "land", "band", "maxloc"]),
        ("i4", ["minloc", "avg"]),
        ("u2", ["maxloc"]),
        ([("value", "f8"), ("index", "i4")], ["sum", "max", "band", "avg"]),
        ([("x", "f8"), ("y", "i4"), ("z", "i4")], ["minloc", "sum"]),
        ([("x", "f8"), ("y", "f8")], ["maxloc"]),
        *((dtype, ["sum", "max", "lor", "bor", "minloc"]) for dtype in ("S3", "U2", "M8[s]", "m8[s]", "V4")),
    ],
    ids=str,
)
def test_operations_that_a_dtype_lacks(dtype, ops):
    """The error message has the operation and the dtype."""
    values = np.zeros(2 * SIZE, dtype)
    for op in ops:
        for function in (pycoll.allreduce, pycoll.reduce, pycoll.reduce_scatter):
            with pytest.raises(TypeError) as caught:
                function(values, op=op)
            assert f"op={op.upper()} " in str(caught.value) and str(values.dtype) in str(caught.value)


PAIRS = [
    (MPI.FLOAT_INT, "f"),
    (MPI.DOUBLE_INT, "d"),
    (MPI.LONG_INT, "l"),
    (MPI.TWOINT, "i"),
    (MPI.SHORT_INT, "h"),
    (MPI.LONG_DOUBLE_INT, "g"),
]


@pytest.mark.parametrize("datatype, value", PAIRS[1:3] if MANY else PAIRS)
@pytest.mark.parametrize("op", ["minloc", "maxloc"])
def test_pairs(datatype, value, op):
    """Ties go to the smallest index; the values are few, so that ties occur, and the index is random or the rank."""
    handle, dtype = getattr(MPI, op.upper()), np.dtype([("value", value), ("index", "i")], align=True)
    assert dtype.itemsize == datatype.extent
    numbers = np.random.default_rng([8, RANK])
    for indices in (numbers.integers(-50, 50, COUNT * SIZE), RANK)[: 1 if MANY else 2]:
        send, expected = np.zeros((2, COUNT * SIZE), dtype)
        send["value"], send["index"] = numbers.integers(-1, 2, send.size), indices
        WORLD.Allreduce([send, datatype], [expected, datatype], handle)
        with cut(3 * dtype.itemsize):
            for algorithm in algorithms_of("allreduce"):
                assert_pairs(pycoll.allreduce(send, op=op, algorithm=algorithm), expected)
            assert_pairs(pycoll.allreduce(MPI.IN_PLACE, send.copy(), handle), expected)
            for algorithm in algorithms_of("reduce_scatter"):
                block = pycoll.reduce_scatter(send, op=handle, algorithm=algorithm)
                assert_pairs(block, expected[RANK * COUNT : (RANK + 1) * COUNT])
            scanned, exscanned = pycoll.scan(send, op=op), pycoll.exscan(send, op=op)
        WORLD.Scan([send, datatype], [expected, datatype], handle)
        assert_pairs(scanned, expected)
        WORLD.Exscan([send, datatype], [expected, datatype], handle)
        assert (exscanned is None) if RANK == 0 else not assert_pairs(exscanned, expected)


def assert_pairs(ours, theirs):
    assert ours.dtype == theirs.dtype
    for field in ("value", "index"):
        np.testing.assert_array_equal(ours[field], theirs[field])


def test_pairs_of_other_widths_and_names():
    """Any structured dtype of a number and an integer is supported, even if packed."""
    for dtype in ([("x", "f8"), ("who", "u1")], [("x", "f2"), ("who", "i8")]):
        send = np.array([(abs(i - RANK), RANK) for i in range(SIZE)], dtype)
        result = pycoll.allreduce(send, op="minloc")
        assert result["x"].tolist() == [0] * SIZE and result["who"].tolist() == list(range(SIZE))


def local(function, left, right, datatype):
    left, right = (np.frombuffer(buffer, "i8") for buffer in (left, right))
    function(left, right)


def put(combine):
    return partial(local, lambda left, right: np.copyto(right, combine(left, right)))


def modulo(m):
    return lambda left, right: (left + right) % m


FUNCTIONS = [  # associative functions, and whether they commute
    (np.maximum, True),
    (lambda left, right: left, False),
    (np.bitwise_xor, True),
    (lambda left, right: right, False),
    (np.minimum, True),
    *((modulo(m), True) for m in (2, 5, 11)),
]


def test_operations_created_and_freed_over_and_over():
    """MPI reuses the handles of freed operations, so pycoll must not cache anything by handle."""
    vectors = [np.random.default_rng(rank).integers(0, 100, 4 * SIZE) for rank in range(SIZE)]
    send, recv = vectors[RANK], np.empty(4 * SIZE, "i8")
    handles = set()
    for i in range(200):
        combine, commutes = FUNCTIONS[i % len(FUNCTIONS)]
        expected = reduce(combine, vectors) if SIZE > 1 else send
        op = MPI.Op.Create(put(combine), commute=commutes)
        handles.add(op.handle)
        assert pycoll.allreduce(send, recv, op) is recv
        np.testing.assert_array_equal(recv, expected, f"in turn {i}")
        if i % 8 == i // 8 % 8:
            inside = send.copy()
            np.testing.assert_array_equal(pycoll.allreduce(MPI.IN_PLACE, inside, op), expected)
            np.testing.assert_array_equal(pycoll.reduce_scatter(send, op=op), expected[4 * RANK : 4 * RANK + 4])
            for root in range(SIZE):
                result = pycoll.reduce(send, op=op, root=root)
                assert (result is None) if RANK != root else (result == expected).all()
        op.Free()
    assert len(handles) < 200


@pytest.mark.parametrize("commutes", [False, True])
def test_operations_of_the_user_on_every_algorithm(commutes):
    """A user-defined sum of complex numbers; if it does not commute, algorithms that reorder refuse it."""

    def add(left, right, datatype):
        left, right = (np.frombuffer(buffer, complex) for buffer in (left, right))
        right += left

    op = MPI.Op.Create(add, commute=commutes)
    send = np.arange(3 * SIZE) + 1j * RANK
    expected = np.arange(3 * SIZE) * SIZE + 1j * sum(range(SIZE))
    with cut(32):
        for primitive in REDUCING:
            part = slice(3 * RANK, 3 * RANK + 3) if primitive == "reduce_scatter" else slice(None)
            for name, algorithm in algorithms_of(primitive).items():
                if commutes or algorithm.ordered:
                    result = getattr(pycoll, primitive)(send, op=op, algorithm=name)
                    assert result is None if primitive == "reduce" and RANK else (result == expected[part]).all()
                else:
                    with pytest.raises(ValueError, match="does not keep rank order"):
                        getattr(pycoll, primitive)(send, op=op, algorithm=name)
            for n in (1, 100):  # with the algorithm of the rules
                result = getattr(pycoll, primitive)(np.full(n * SIZE, 1j), op=op)
                assert result is None if primitive == "reduce" and RANK else (result == SIZE * 1j).all()
    op.Free()


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, "u1")
    result = memory[1:].view(array.dtype)
    result[...] = array
    return result


@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("algorithm", ["ring", "tree", None, "native"])
def test_operations_of_the_user_on_unaligned_buffers(dtype, algorithm):
    """Only one rank has such a buffer; mpi4py knows no datatype of its format, with or without an algorithm."""

    def add(left, right, datatype):
        left, right = (np.frombuffer(buffer, dtype) for buffer in (left, right))
        right += left

    op = MPI.Op.Create(add, commute=True)
    values = np.arange(2 * SIZE).astype(dtype)
    expected = values * SIZE
    for send in (values, unaligned(values)) if RANK == SIZE - 1 else (values, values):
        for form in ("allreduce", "iallreduce"):
            result = getattr(pycoll, form)(send, op=op, algorithm=algorithm)
            np.testing.assert_array_equal(result if form == "allreduce" else result.wait(), expected)
        recv = unaligned(values) if RANK == 0 else values.copy()
        np.testing.assert_array_equal(pycoll.allreduce(MPI.IN_PLACE, recv, op, algorithm=algorithm), expected)
        if algorithm != "tree":
            block = pycoll.reduce_scatter(send, op=op, algorithm=algorithm)
            np.testing.assert_array_equal(block, expected[2 * RANK : 2 * RANK + 2])
    op.Free()


@pytest.mark.parametrize("dtype", ["S3", "M8[s]", [("x", "f8"), ("y", "i4")]], ids=str)
def test_operations_of_the_user_where_mpi_has_no_type(dtype):
    op = MPI.Op.Create(put(np.maximum), commute=True)
    values = np.zeros(SIZE, dtype)
    with pytest.raises(TypeError) as caught:
        pycoll.allreduce(values, op=op)
    assert "op=user-defined" in str(caught.value) and str(values.dtype) in str(caught.value)
    op.Free()


def test_a_freed_operation_is_refused():
    op = MPI.Op.Create(put(np.maximum), commute=True)
    op.Free()
    with pytest.raises(ValueError, match="op="):
        pycoll.allreduce(np.ones(2), op=op)
