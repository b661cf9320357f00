"""`pycoll.Comm` against mpi4py: MPI datatypes, also with gaps or absolute addresses, and MPI operations."""

import gc
import weakref
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments import packing
from tests.mpi.native import HANDLES, KINDS, RANK, SIZE, WORLD

from .specifications import FORMS, INT, MOVES, OURS, REDUCTIONS, THEIRS, TYPED, TYPES, call_of, check

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("method", MOVES)
def test_datatypes_with_gaps_and_without(method):
    """Typemaps with equal signatures may differ between the two buffers of a rank, and between ranks."""
    for i, types in enumerate(pairwise([*TYPES, "int"])):
        for style in ("[buf, count, type]", TYPED):
            check(method, partial(call_of, method, RANK, style, types, root=i % SIZE), [FORMS[i % 3]])


@pytest.mark.parametrize("method", MOVES)
def test_every_algorithm_on_datatypes_with_gaps(method):
    algorithms = pycoll.algorithms(method.lower())
    check(method, partial(call_of, method, RANK, TYPED, ("vector", "struct"), SIZE // 2), ["blocking"], algorithms)


@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Alltoallv"])
def test_packing_piece_by_piece(method, monkeypatch):
    """Elements are packed in pieces of at most PIECE bytes, but of at least one element."""
    for piece in (1, 17):
        monkeypatch.setattr(packing, "PIECE", piece)
        check(method, partial(call_of, method, RANK, TYPED, ("resized", "shifted"), counts=[7] * SIZE), FORMS)


@pytest.mark.skipif(MPI.VERSION >= 4, reason="this MPI library packs elements of any size")
def test_elements_that_are_too_large_to_be_packed():
    huge = MPI.BYTE.Create_vector(1 << 20, 1, 2).Create_contiguous(1 << 11).Commit()
    with pytest.raises(ValueError, match="2147483648 bytes"):
        OURS.Bcast([MPI.BOTTOM, 1, huge])


@pytest.mark.parametrize("method", MOVES)
def test_bottom(method):
    """MPI.BOTTOM with absolute addresses; each element is two ints at two places."""
    if method == "Gather" and "Open MPI" in MPI.Get_library_version():
        pytest.skip("Open MPI 5.0.11 itself gathers wrong numbers at 4 and 5 ranks")
    sends_all = "Scatter" in method or "Alltoall" in method
    gets_all = "ather" in method or "Alltoall" in method

    def absolute(everything):
        elements = 2 * SIZE if everything else 2
        places = np.random.default_rng([RANK, everything]).integers(0, 99, (2, 2 * elements), np.intc)
        pair = MPI.Datatype.Create_struct([1, 1], [MPI.Get_address(row) for row in places], [INT, INT])
        count = [2] * SIZE if method.endswith("v") and everything else 2
        return [MPI.BOTTOM, count, pair.Create_resized(0, 8).Commit()], places

    def make():
        (send, sent), (recv, received) = absolute(sends_all), absolute(gets_all)
        return [send] if method == "Bcast" else [send, recv], [sent, received]

    check(method, make, FORMS)


def alltoallw_cases():
    gaps = [TYPES[name] for name in ("vector", "contiguous", "struct", "resized")]

    def spread(datatypes):  # one element for each rank, 40 bytes apart
        memory = np.random.default_rng(RANK).integers(0, 99, 10 * SIZE + 4, np.intc)
        return memory, [memory, ([1] * SIZE, [40 * r for r in range(SIZE)]), datatypes]

    def some(datatypes, counts):
        memory, (_, (_, displs), _) = spread(datatypes)
        return memory, [memory, counts, displs, datatypes]

    sends, receives = (
        [gaps[(RANK + other) % 4] for other in range(SIZE)],
        [gaps[(RANK + other + 1) % 4] for other in range(SIZE)],
    )
    some_counts = [(RANK + other) % 3 for other in range(SIZE)]
    yield "gaps", lambda: (spread(sends), spread(receives))
    yield "dense", lambda: (spread([INT] * SIZE), spread([INT] * SIZE))
    yield "mixed", lambda: (spread([TYPES["contiguous"]] * SIZE), spread(receives))
    yield "counts", lambda: (some(sends, some_counts), some(receives, some_counts))
    yield "in place", lambda: (None, some([gaps[0]] * SIZE, some_counts))


@pytest.mark.parametrize("sides", [pytest.param(make, id=name) for name, make in alltoallw_cases()])
def test_alltoallw(sides):
    def make():
        send, recv = sides()
        return [send[1] if send else MPI.IN_PLACE, recv[1]], [recv[0], *([send[0]] if send else [])]

    check("Alltoallw", make, FORMS, [None, *pycoll.algorithms("alltoallw")])


def test_alltoallw_of_one_element_for_each():
    """With [buf, types], only the types define the location of the blocks."""

    def make():
        types = [INT.Create_hindexed([1], [8 * r]).Commit() for r in range(SIZE)]
        send, recv = np.arange(2 * SIZE, dtype=np.intc) + 100 * RANK, np.zeros(2 * SIZE, np.intc)
        return [[send, types], [recv, types]], [recv]

    check("Alltoallw", make, FORMS)


def test_alltoallw_from_bottom():
    def make():
        send, recv = np.arange(SIZE, dtype=np.intc) + 100 * RANK, np.zeros(SIZE, np.intc)
        specs = []
        for start in (MPI.Get_address(send), MPI.Get_address(recv)):
            types = [INT.Create_hindexed([1], [start + 4 * r]).Commit() for r in range(SIZE)]
            specs.append([MPI.BOTTOM, [1] * SIZE, [0] * SIZE, types])
        return specs, [send, recv]

    check("Alltoallw", make, FORMS)


@pytest.mark.parametrize("neighbors", [False, True])
def test_alltoallw_of_mpi_on_other_buffers(neighbors):
    """Later calls of a kind have other buffers; calls with other counts, or with a freed datatype, are another kind."""
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [True]))
    blocks = 2 if neighbors else SIZE
    ours, theirs = (
        getattr(communicator, "Neighbor_alltoallw" if neighbors else "Alltoallw")
        for communicator in (comm, MPI.Cartcomm(comm))
    )
    types = [INT.Create_vector(2, 1, 2).Commit() for _ in range(blocks)]
    displs = [12 * block for block in range(blocks)]
    for number, count in enumerate([1, 1, 1, 0, 1]):
        send, counts = np.arange(3 * blocks, dtype=np.intc) + 100 * RANK + 1000 * number, [count] * blocks
        received = np.full((2, 3 * blocks), -1, np.intc)
        ours([send, counts, displs, types], [received[0], counts, displs, types], algorithm="native")
        theirs([send, counts, displs, types], [received[1], counts, displs, types])
        np.testing.assert_array_equal(*received)
        assert (received[0] != -1).sum() == 2 * blocks * count
    types[-1].Free()
    with pytest.raises(MPI.Exception):
        ours([send, counts, displs, types], [received[0], counts, displs, types], algorithm="native")
    comm.Free()


def test_columns_become_rows():
    """The extent of a column is one number, so that consecutive elements interleave."""
    column = INT.Create_vector(3, 1, SIZE).Create_resized(0, 4).Commit()

    def make():
        send, recv = np.arange(3 * SIZE, dtype=np.intc) + 100 * RANK, np.zeros((3, SIZE), np.intc)
        return [[send, 3, INT], [recv, 1, column]], [recv]

    check("Alltoall", make, FORMS)


def test_a_pair_type_and_a_struct_of_its_signature():
    """A pair type and a struct with the same signature match, although their padding differs."""
    struct = MPI.Datatype.Create_struct([1, 1], [8, 0], [MPI.DOUBLE, INT]).Commit()  # in this order

    def make(method, one, other):
        send, recv = np.arange(8) + 100 * RANK, np.full(8 * SIZE, -1)
        if method == "Bcast":
            return [[send, 3, one] if RANK == 0 else [recv, 3, other]], [recv]
        return [[send, 3, one], [recv, [3] * SIZE if method == "Allgatherv" else 3, other]], [recv]

    for types in ((MPI.DOUBLE_INT, struct), (struct, MPI.DOUBLE_INT), (MPI.DOUBLE_INT, MPI.DOUBLE_INT)):
        for method in ("Bcast", "Allgather", "Allgatherv"):
            check(method, partial(make, method, *types))


PREDEFINED = {}
for _name, _datatype in vars(MPI).items():
    if type(_datatype) is MPI.Datatype and _datatype not in (MPI.DATATYPE_NULL, *PREDEFINED.values()):  # skip aliases
        PREDEFINED |= {_name: _datatype} if _datatype.is_predefined and _datatype.size else {}
VALUES_OF_PAIRS = {"FLOAT_INT": "f", "DOUBLE_INT": "d", "LONG_INT": "l", "TWOINT": "i", "INT_INT": "i"}
VALUES_OF_PAIRS |= {"SHORT_INT": "h", "LONG_DOUBLE_INT": "g", "TWOREAL": "f", "TWODOUBLE_PRECISION": "d"}
VALUES_OF_PAIRS |= {"TWOINTEGER": "i"}
PAIRS = [name for name in PREDEFINED if name in VALUES_OF_PAIRS]
FORTRAN = ("INTEGER", "LOGICAL", "REAL", "COMPLEX", "DOUBLE_")
NOT_NUMERIC = (*PAIRS, "BYTE", "PACKED", "CHAR", "WCHAR", "CHARACTER", "REAL16", "COMPLEX32")
NOT_NUMERIC += "COMPLEX4", "INTEGER16", "LOGICAL16"  # which the ABI of MPI 5 has, but not NumPy


@pytest.mark.parametrize("name", PREDEFINED)
def test_all_predefined_datatypes_move(name):
    datatype = PREDEFINED[name]

    def make():
        numbers = np.random.default_rng(RANK)
        send = numbers.integers(0, 2, 3 * datatype.extent, np.uint8)
        recv = np.full(3 * SIZE * datatype.extent, 7, np.uint8)
        return [[send, 3, datatype], [recv, 3, datatype]], [recv]

    check("Allgather", make)


@pytest.mark.parametrize("name", [name for name in PREDEFINED if name not in NOT_NUMERIC])
def test_all_numeric_datatypes_are_reduced(name):
    datatype = PREDEFINED[name]
    dtype = np.dtype(datatype.tocode())
    names = [op for op, kinds in KINDS.items() if dtype.kind in kinds and op != "avg"]
    if name.startswith(FORTRAN):  # in Fortran, integers and logical values are different types
        names = [op for op in names if (op in ("land", "lor", "lxor")) == name.startswith("LOGICAL")]
    assert names

    def make(op):
        send = np.random.default_rng(RANK).integers(0, 2 if dtype.itemsize == 1 else 4, 5).astype(dtype)
        recv = np.zeros_like(send)
        return [[send, datatype], [recv, datatype], HANDLES[op]], [recv]

    for op in names:
        check("Allreduce", partial(make, op))


@pytest.mark.parametrize("name", [name for name in PREDEFINED if name in ("REAL16", "COMPLEX32")])
def test_quadruple_precision(name):
    """Quadruple precision is reduced by MPI: NumPy lacks it, although its long double has the same size."""
    if name == "COMPLEX32" and ("MPICH", (4, 0)) < MPI.get_vendor() < ("MPICH", (5, 0)):
        pytest.skip("MPICH 4.2 does not add it")

    def make():
        powers = np.zeros((6, 8), "u2")  # 1, 2, 4 and 8 in IEEE binary128
        powers[:, 7] = 0x3FFF + np.random.default_rng(RANK).integers(0, 4, 6)
        result = np.zeros_like(powers)
        return [[powers, PREDEFINED[name]], [result, PREDEFINED[name]]], [result]

    check("Allreduce", make)


def test_bytes_are_combined_bit_by_bit():
    def make(op):
        send, recv = np.random.default_rng(RANK).bytes(9), bytearray(9)
        return [[send, MPI.BYTE], [recv, MPI.BYTE], op], [np.frombuffer(recv, "u1")]

    for op in (MPI.BAND, MPI.BOR, MPI.BXOR):
        check("Allreduce", partial(make, op))


@pytest.mark.parametrize("name", PAIRS)
def test_pair_types(name):
    datatype, value = PREDEFINED[name], VALUES_OF_PAIRS[name]
    dtype = np.dtype([("value", value), ("index", value if name.startswith("TWO") else "i")], align=True)
    assert dtype.itemsize == datatype.extent

    def make(method, op):
        send = np.zeros(6 * SIZE, dtype)
        send["value"] = np.random.default_rng(RANK).integers(0, 3, 6 * SIZE)
        send["index"] = RANK
        recv = np.zeros(6 if "scatter" in method else 6 * SIZE, dtype)
        arguments = [[send, datatype], [recv, datatype], *([None] if method == "Reduce_scatter" else []), op]
        return arguments, [recv["value"], recv["index"]] if RANK or method != "Exscan" else []

    for method in REDUCTIONS:
        for op in (MPI.MINLOC, MPI.MAXLOC):
            check(method, partial(make, method, op))


@pytest.fixture
def affine():
    """Yield the composition of maps x -> a x + b, with a and b in the first two ints of an element.

    It is associative, but not commutative.
    """

    def compose(left, right, datatype):
        width = max(datatype.extent // 4, 2)
        first, then = (np.frombuffer(buffer, "i4").reshape(-1, width) for buffer in (left, right))
        a, b = first[:, :2].T.copy()
        then[:, 1] += then[:, 0] * b
        then[:, 0] *= a

    op = MPI.Op.Create(compose, commute=False)
    yield op
    op.Free()


@pytest.mark.parametrize("datatype", [MPI.LONG, TYPES["contiguous"], TYPES["resized"]], ids=["long", "dense", "gaps"])
@pytest.mark.parametrize("method", REDUCTIONS)
def test_operations_of_the_user(method, datatype, affine):
    def make():
        width = datatype.extent // 4
        send = np.random.default_rng(RANK).integers(-3, 4, (3 * SIZE, width)).astype("i4")
        recv = np.zeros((3 if "scatter" in method else 3 * SIZE, width), "i4")
        arguments = [[send, datatype], [recv, datatype], *([None] if method == "Reduce_scatter" else []), affine]
        return arguments, [recv[:, :2]] if RANK or method != "Exscan" else []

    if "scatter" in method and datatype.size < datatype.extent and "MPICH" in MPI.Get_library_version():
        pytest.skip("MPICH 5.0.2 writes beyond its memory")
    check(method, make, FORMS)


def test_operations_of_the_user_in_place(affine):
    def make():
        values = np.random.default_rng(RANK).integers(-3, 4, (4, 2)).astype("i4")
        return [MPI.IN_PLACE, [values, TYPES["contiguous"]], affine], [values]

    for method in ("Allreduce", "Scan"):
        check(method, make, FORMS)


def test_algorithms_do_not_run_on_elements_with_gaps(affine):
    send, recv = ([np.zeros((4, 4), "i4"), TYPES["resized"]] for _ in range(2))
    with pytest.raises(TypeError, match="algorithm='tree': allreduce of elements without a NumPy dtype"):
        OURS.Allreduce(send, recv, affine, algorithm="tree")
    OURS.Allreduce(send, recv, affine, algorithm="native")


@pytest.mark.parametrize("op", ["avg", "exact_sum"])
@pytest.mark.parametrize("name", ["contiguous", "resized"])
def test_operations_that_mpi_does_not_have(op, name):
    send, recv = ([np.zeros((4 * SIZE, 4), "i4"), TYPES[name]] for _ in range(2))
    native = f"is left to MPI, which has no {op.upper()}"
    message = f"op={op.upper()} is not defined for the derived datatype {name.upper()}: .* {native}"
    for method in OURS.Allreduce, OURS.Iallreduce, OURS.Allreduce_init, OURS.Exscan, OURS.Reduce:
        with pytest.raises(TypeError, match=message):
            method(send, recv, op=op)
    with pytest.raises(TypeError, match=message):
        OURS.Allreduce(MPI.IN_PLACE, recv, op=op)


def test_names_of_operations_that_are_left_to_mpi():
    if MPI.REAL16 == MPI.DATATYPE_NULL:
        pytest.skip("MPI has no REAL16")
    send, result, expected = np.array([1.0, 0.0] * 3), np.zeros(6), np.zeros(6)
    THEIRS.Allreduce([send, MPI.REAL16], [expected, MPI.REAL16], MPI.MAX)
    OURS.Allreduce([send, MPI.REAL16], [result, MPI.REAL16], "max")
    np.testing.assert_array_equal(result, expected)
    with pytest.raises(TypeError, match="op=EXACT_SUM is not defined for the datatype MPI_REAL16"):
        OURS.Allreduce([send, MPI.REAL16], [result, MPI.REAL16], "exact_sum")
    with pytest.raises(ValueError, match="op='median' is not one of"):
        OURS.Allreduce([send, MPI.REAL16], [result, MPI.REAL16], "median")


def test_operations_that_do_not_commute_and_choices(affine):
    comm = OURS.Dup()
    values, result = np.full(3, 2**32 + RANK), np.zeros(3, int)
    with pytest.raises(ValueError, match="does not keep rank order"):
        comm.Allreduce(values, result, affine, algorithm="ring")
    comm.algorithm["Allreduce"] = "ring"
    comm.Allreduce(values, result, affine)
    expected = np.zeros_like(result)
    THEIRS.Allreduce(values, expected, affine)
    np.testing.assert_array_equal(result, expected)
    comm.Free()


@pytest.mark.parametrize("method", ["Iallreduce", "Allreduce_init"])
def test_buffers_of_requests_that_mpi_makes(method):
    """Check that they live until the request is gone, although mpi4py does not keep them."""
    comm = pycoll.Comm(WORLD)
    pair = INT.Create_vector(1, 1, 1).Create_resized(0, 8).Commit()  # with a gap
    op = MPI.Op.Create(lambda given, result, datatype: None, commute=True)
    send, recv = np.ones(8, "i"), np.zeros(8, "i")
    memory = weakref.ref(send)
    try:
        request = getattr(comm, method)([send, 4, pair], [recv, 4, pair], op)
    except (NotImplementedError, MPI.Exception) as error:
        pytest.skip(f"{method}: {error}")
    del send
    gc.collect()
    assert memory() is not None
    if method.endswith("init"):
        request.Start()
    request.Wait()
    if method.endswith("init"):
        request.Free()
    del request
    gc.collect()
    assert memory() is None
    pair.Free()
    op.Free()


@pytest.mark.parametrize("algorithm", [None, "ring"])
def test_datatypes_that_are_freed(algorithm):
    comm = pycoll.Comm(WORLD)
    column = MPI.DOUBLE.Create_vector(4, 1, 4).Commit()
    column.Free()
    for spec in ([np.zeros(16), 1, column], [np.zeros(16), column], [np.zeros(16), MPI.DATATYPE_NULL]):
        with pytest.raises(ValueError, match=r"the datatype is MPI\.DATATYPE_NULL, or has been freed"):
            comm.Bcast(spec, algorithm=algorithm)
        with pytest.raises(MPI.Exception) as caught:
            comm.Iallreduce(spec, np.zeros(16))
        assert caught.value.Get_error_class() == MPI.ERR_TYPE


@pytest.mark.parametrize("algorithm", [None, "tree"])
@pytest.mark.parametrize("method", ["Allreduce", "Iallreduce", "Scan"])
@pytest.mark.parametrize(
    "datatype", [MPI.BYTE, MPI.UNSIGNED_CHAR, MPI.INT64_T, MPI.DOUBLE_INT], ids=lambda one: one.name
)
def test_user_defined_operations_get_the_datatype_of_the_caller(datatype, method, algorithm):
    seen = set()

    def combine(given, result, datatype):
        seen.add(datatype.name)
        left, right = (np.frombuffer(memory, np.uint8) for memory in (given, result))
        right += left

    op = MPI.Op.Create(combine, commute=True)
    send, recv = np.full(3 * datatype.extent, RANK + 1, np.uint8), np.zeros(3 * datatype.extent, np.uint8)
    request = getattr(pycoll.Comm(WORLD), method)([send, datatype], [recv, datatype], op, algorithm=algorithm)
    if request:
        request.Wait()
    last = RANK + 1 if method == "Scan" else SIZE
    assert recv[: datatype.size].tolist() == [last * (last + 1) // 2] * datatype.size
    assert seen <= {datatype.name}
    op.Free()
