"""`pycoll.Comm` against mpi4py's own methods: the same call on the same memory leaves the same bytes everywhere."""

import inspect
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll

from .native import HANDLES, KINDS, RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
OURS, THEIRS = pycoll.Comm(WORLD), WORLD.Dup()

MOVES = ["Bcast", "Scatter", "Gather", "Allgather", "Alltoall", "Scatterv", "Gatherv", "Allgatherv", "Alltoallv"]
REDUCTIONS = ["Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"]
METHODS = [*MOVES, *REDUCTIONS]
ROOTED = ["Bcast", "Scatter", "Gather", "Scatterv", "Gatherv", "Reduce"]
FORMS = ["blocking", "nonblocking", "persistent"]

# memory, count(s), displacement(s) and datatype as a buffer specification
STYLES = {
    "buf": lambda b, c, d, t: b,
    "[buf, type]": lambda b, c, d, t: [b, t],
    "[buf, code]": lambda b, c, d, t: [b, "i"],
    "[buf, count]": lambda b, c, d, t: [b, c],
    "[buf, count, type]": lambda b, c, d, t: [b, c, t],
    "[buf, count, code]": lambda b, c, d, t: (b, c, "i"),
    "[buf, (count, displ)]": lambda b, c, d, t: [b, (c, d)],
    "[buf, (count, displ), type]": lambda b, c, d, t: (b, (c, d), t),
    "[buf, count, displ, type]": lambda b, c, d, t: [b, c, d, t],
    "[buf, count, displ, code]": lambda b, c, d, t: [b, c, d, "i"],
}
VECTOR_STYLES = [style for style in STYLES if "count" in style]
TYPED = "[buf, (count, displ), type]"

INT = MPI.INT
# ints in several layouts, most of them two in each element
TYPES = {
    "int": INT,
    "dup": INT.Dup(),
    "contiguous": INT.Create_contiguous(2),
    "contiguous twice": INT.Create_contiguous(1).Create_contiguous(2),
    "vector": INT.Create_vector(2, 1, 2),
    "indexed": INT.Create_indexed([1, 1], [1, 3]),
    "reversed": INT.Create_indexed([1, 1], [1, 0]),
    "resized": INT.Create_contiguous(2).Create_resized(0, 16),
    "shifted": INT.Create_contiguous(2).Create_resized(-4, 12),
    "struct": MPI.Datatype.Create_struct([1, 1], [0, 8], [INT, INT]),
    "subarray": INT.Create_subarray([2, 3], [2, 1], [0, 1]),
}
for _name in list(TYPES)[1:]:
    TYPES[_name].Commit()


def side(style, ints, name, vector, gap=1):
    """A specification of blocks of so many ints, and its memory; with displacements in an order of their own."""
    datatype = TYPES[name]
    counts = [n * INT.size // datatype.size for n in ints]
    count, displ, end = counts[0], 0, sum(counts)
    if "displ" in style and vector:
        displ, end = [0] * len(counts), gap
        for i in reversed(range(len(counts))):
            displ[i] = end
            end += counts[i] + gap
    elif "displ" in style:
        displ = gap
        end += gap
    slack = 16 if "count" in style else 0
    memory = np.random.default_rng([RANK, len(ints)]).integers(
        -9, 9, (end * datatype.extent + slack) // INT.size, np.intc
    )
    return STYLES[style](memory, counts if vector else count, displ, datatype), memory


def call_of(method, rank, style="buf", types=("int", "int"), root=0, counts=None, gap=1, inside=False, marker=None):
    """A method's arguments, and the memory that the call may change or read.

    `counts` are in pairs of ints, for each rank; `inside` puts `marker` for the buffer that MPI.IN_PLACE stands for.
    """
    counts = [2 * n for n in counts or [(5 * r + 1) % 4 for r in range(SIZE)]]
    if not (method.endswith("v") or method == "Reduce_scatter"):
        counts = [max(counts)] * SIZE
    own, at_root, total = [counts[rank]], rank == root, [sum(counts)]
    step = 1 if inside else 2  # in place, ranks exchange as much as they get
    sends, receives = {
        "Bcast": (own, own),
        "Scatter": (counts, own),
        "Gather": (own, counts),
        "Allgather": (own, counts),
        "Alltoall": (
            [counts[(rank + step * other) % SIZE] for other in range(SIZE)],
            [counts[(other + step * rank) % SIZE] for other in range(SIZE)],
        ),
        "Reduce_scatter": (total, total if inside else own),
        "Reduce_scatter_block": (counts, counts if inside else own),
    }.get(method.removesuffix("v"), (own, own))
    vector = method.endswith("v")
    send, sent = side(style, sends, types[0], vector and "Gather" not in method and "gather" not in method, gap)
    recv, received = side(style, receives, types[1], vector and "Scatter" not in method, gap)
    if method == "Bcast":
        return [send if at_root else recv, root], [sent if at_root else received]
    if inside and "Scatter" in method:
        recv = marker if at_root else recv
    elif inside and (at_root or method not in ROOTED):
        send = marker
    if method in ROOTED and not at_root:
        send, recv = (None, recv) if "Scatter" in method else (send, None)
    arguments = [send, recv]
    if inside and "Reduce_scatter" in method:  # what lies behind the block is not defined
        start = gap if "displ" in style else 0
        received = received[start : start + own[0]]
    if method == "Reduce_scatter":
        arguments.append(counts)
    if method in REDUCTIONS:
        arguments.append(MPI.SUM)
    if method in ROOTED:
        arguments.append(root)
    return arguments, [sent, received]


def run(comm, method, form, arguments, **options):
    if form == "blocking":
        assert getattr(comm, method)(*arguments, **options) is None
    elif form == "nonblocking":
        getattr(comm, f"I{method.lower()}")(*arguments, **options).Wait()
    else:
        request = getattr(comm, f"{method}_init")(*arguments, **options)
        request.Start()
        request.Wait()
        request.Free()


def check(method, make, forms=("blocking",), algorithms=(None,), comms=(OURS, THEIRS)):
    """Compare a call in these forms and by these algorithms with mpi4py's blocking one."""
    ours, theirs = comms
    arguments, expected = make()
    getattr(theirs, method)(*arguments)
    for algorithm in algorithms:
        for form in forms:
            arguments, memory = make()
            run(ours, method, form, arguments, **({"algorithm": algorithm} if algorithm else {}))
            for one, other in zip(memory, expected):
                np.testing.assert_array_equal(one, other, f"{method} {form} {algorithm}")


def styles_of(method):
    return VECTOR_STYLES if method.endswith("v") else list(STYLES)


@pytest.mark.parametrize("method", METHODS)
def test_every_algorithm_in_every_form(method):
    name = pycoll.settings.primitive_called(method)
    algorithms = [None, *pycoll.algorithms(name)]
    style = "[buf, count]" if method.endswith("v") else "buf"
    check(method, partial(call_of, method, RANK, style, root=SIZE - 1), FORMS, algorithms)


@pytest.mark.parametrize("form", FORMS)
def test_barrier(form):
    for algorithm in [None, *pycoll.algorithms("barrier")]:
        run(OURS, "Barrier", form, [], algorithm=algorithm)


@pytest.mark.parametrize("method", METHODS)
def test_specifications(method):
    for i, style in enumerate(styles_of(method)):
        check(method, partial(call_of, method, RANK, style, root=i % SIZE), [FORMS[i % 3]])


@pytest.mark.parametrize("method", MOVES)
def test_datatypes_with_gaps_and_without(method):
    """In the buffers of a rank, and of one rank and another: the typemaps differ, the signature is the same."""
    for i, types in enumerate(pairwise([*TYPES, "int"])):
        for style in ("[buf, count, type]", TYPED):
            check(method, partial(call_of, method, RANK, style, types, root=i % SIZE), [FORMS[i % 3]])


@pytest.mark.parametrize("method", MOVES)
def test_every_algorithm_on_datatypes_with_gaps(method):
    algorithms = pycoll.algorithms(method.lower())
    check(method, partial(call_of, method, RANK, TYPED, ("vector", "struct"), SIZE // 2), ["blocking"], algorithms)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "Bcast"])
@pytest.mark.parametrize("marker", [MPI.IN_PLACE, None], ids=["IN_PLACE", "None"])
def test_in_place(method, marker):
    for i, style in enumerate(styles_of(method)):
        check(
            method,
            partial(call_of, method, RANK, style, root=i % SIZE, inside=True, marker=marker),
            [FORMS[i % 3]],
        )
    if method in MOVES:
        check(method, partial(call_of, method, RANK, TYPED, ("vector", "vector"), inside=True, marker=marker), FORMS)


@pytest.mark.parametrize("method", METHODS)
def test_in_place_by_every_algorithm(method):
    if method != "Bcast":
        name = pycoll.settings.primitive_called(method)
        style = "[buf, count]" if method.endswith("v") else "buf"
        check(
            method,
            partial(call_of, method, RANK, style, root=SIZE - 1, inside=True, marker=MPI.IN_PLACE),
            ["blocking"],
            pycoll.algorithms(name),
        )


@pytest.mark.parametrize("method", ["Reduce", "Allreduce", "Scan", "Exscan"])
def test_one_buffer_for_both_means_in_place(method):
    """As in later versions of mpi4py."""
    values, expected = np.arange(4) + RANK, np.arange(4) + RANK
    aside = method == "Reduce" and RANK
    getattr(THEIRS, method)(*([expected, None] if aside else [MPI.IN_PLACE, expected]))
    getattr(OURS, method)(values, values)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("method", METHODS)
def test_zero_counts(method):
    for i, style in enumerate(styles_of(method)):
        check(method, partial(call_of, method, RANK, style, counts=[0] * SIZE), [FORMS[i % 3]])


def test_no_buffer_for_no_elements():
    for nothing in ([None, 0, MPI.INT], [None, MPI.INT], [bytearray(), "i"]):
        OURS.Bcast(nothing)
        OURS.Allgather(nothing, nothing)


def test_zero_counts_between_some():
    for zeros in ([0] + [3] * (SIZE - 1), [0] * (SIZE - 1) + [3], [(r % 2) * 2 for r in range(SIZE)]):
        for method in ("Scatterv", "Gatherv", "Allgatherv", "Alltoallv", "Reduce_scatter"):
            check(method, partial(call_of, method, RANK, TYPED, counts=zeros, root=SIZE - 1))


@pytest.mark.parametrize("method", ["Scatterv", "Gatherv", "Allgatherv", "Alltoallv"])
@pytest.mark.parametrize(
    "written",
    [
        lambda b: [b, 2, INT],
        lambda b: [b, 2, 4, INT],
        lambda b: [b, (2, 3)],
        lambda b: [b, 2],
        lambda b: [b, np.full(SIZE, 2), INT],
        lambda b: [b, (tuple([2] * SIZE), np.arange(SIZE) * 3), "i"],
        lambda b: b[: 2 * SIZE],
        lambda b: [b[: 2 * SIZE], INT],
    ],
)
def test_counts_and_displacements_written_otherwise(method, written):
    """One number for all ranks, arrays, or nothing, where the buffer is shared out."""

    def make():
        blocks, block = np.arange(4 * SIZE, dtype=np.intc) + 100 * RANK, np.arange(2, dtype=np.intc) + 100 * RANK
        other = blocks.copy()
        send = written(blocks) if method in ("Scatterv", "Alltoallv") else block
        return [send, block if method == "Scatterv" else written(other)], [block, other]

    check(method, make)


def test_counts_shared_out_unevenly():
    def make():
        values, mine = np.arange(3 * SIZE - 1, dtype=np.intc), np.zeros(3 - (RANK == SIZE - 1), np.intc)
        return [values, mine], [mine]

    check("Scatterv", make)


def test_receive_counts_found_out():
    def make():
        send, recv = np.arange(SIZE * (SIZE + 1) // 2, dtype=np.intc) + RANK, np.zeros(RANK + 1, np.intc)
        return [send, recv], [recv]

    check("Reduce_scatter", make, FORMS)


@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Allreduce", "Alltoall"])
def test_arrays_in_fortran_order(method):
    def make():
        send = np.asfortranarray(np.arange(6 * SIZE).reshape(3, -1) + RANK)
        recv = np.zeros((2 * SIZE, 3 * SIZE if method == "Allgather" else 3), order="F", dtype=send.dtype)
        return [send, recv][: 1 if method == "Bcast" else 2], [send, recv]

    check(method, make)


@pytest.mark.parametrize("method", MOVES)
def test_bottom(method):
    """Absolute addresses: each element is two ints in two places."""
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
    """[buf, types]: where nothing but the types says where the blocks lie."""

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


def test_columns_become_rows():
    """A column's extent is one number, so that elements interlace."""
    column = INT.Create_vector(3, 1, SIZE).Create_resized(0, 4).Commit()

    def make():
        send, recv = np.arange(3 * SIZE, dtype=np.intc) + 100 * RANK, np.zeros((3, SIZE), np.intc)
        return [[send, 3, INT], [recv, 1, column]], [recv]

    check("Alltoall", make, FORMS)


def test_a_pair_type_and_a_struct_of_its_signature():
    """The first has padding between its elements, the second has not, or has it elsewhere."""
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
    if type(_datatype) is MPI.Datatype and _datatype not in (MPI.DATATYPE_NULL, *PREDEFINED.values()):  # no aliases
        PREDEFINED |= {_name: _datatype} if _datatype.is_predefined and _datatype.size else {}
VALUES_OF_PAIRS = {"FLOAT_INT": "f", "DOUBLE_INT": "d", "LONG_INT": "l", "TWOINT": "i", "INT_INT": "i"}
VALUES_OF_PAIRS |= {"SHORT_INT": "h", "LONG_DOUBLE_INT": "g", "TWOREAL": "f", "TWODOUBLE_PRECISION": "d"}
VALUES_OF_PAIRS |= {"TWOINTEGER": "i"}
PAIRS = [name for name in PREDEFINED if name in VALUES_OF_PAIRS]
FORTRAN = ("INTEGER", "LOGICAL", "REAL", "COMPLEX", "DOUBLE_")
NOT_NUMERIC = (*PAIRS, "BYTE", "PACKED", "CHAR", "WCHAR", "CHARACTER", "REAL16", "COMPLEX32")


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
    if name.startswith(FORTRAN):  # whose integers and logical values are two things
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
    """Which NumPy does not have: its long double has as many bytes."""

    def make():
        powers = np.zeros((6, 8), "u2")  # 1, 2, 4 and 8 in IEEE's format
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
    """Composition of maps x -> a x + b, associative, not commutative; a and b in the first two ints of an element."""

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


FORM_NAMES = {"": lambda name: name, "I": lambda name: f"I{name.lower()}", "_init": lambda name: f"{name}_init"}


@pytest.mark.parametrize("form", FORM_NAMES.values(), ids=FORM_NAMES)
@pytest.mark.parametrize("method", [*METHODS, "Alltoallw", "Barrier"])
def test_signatures(method, form):
    ours, theirs = (inspect.signature(getattr(cls, form(method))).parameters for cls in (pycoll.Comm, MPI.Intracomm))
    assert [(p.name, p.default, p.kind) for p in ours.values()][: len(theirs)] == [
        (p.name, p.default, p.kind) for p in theirs.values()
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(ours.values())[len(theirs) :])


MAKERS = [
    *("Split", "Split_type", "Create", "Create_group", "Dup", "Dup_with_info"),
    *("Clone", "Idup", "Idup_with_info", "Free"),
]


@pytest.mark.parametrize("method", MAKERS)
def test_signatures_of_what_makes_communicators(method):
    ours, theirs = (inspect.signature(getattr(cls, method)).parameters for cls in (pycoll.Comm, MPI.Intracomm))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_arguments_by_name():
    values, result, expected = np.arange(4) + RANK, np.zeros(4, int), np.zeros(4, int)
    THEIRS.Reduce(sendbuf=values, recvbuf=expected, op=MPI.MAX, root=SIZE - 1)
    OURS.Reduce(sendbuf=values, recvbuf=result, op=MPI.MAX, root=SIZE - 1)
    np.testing.assert_array_equal(result, expected)
    OURS.Ireduce(recvbuf=result, sendbuf=values, root=SIZE - 1, op=MPI.MAX).Wait()
    np.testing.assert_array_equal(result, expected)
    for more in ({"info": MPI.INFO_NULL}, {}):
        request = OURS.Reduce_init(values, recvbuf=result, op=MPI.MAX, root=SIZE - 1, **more)
        request.Start()
        request.Wait()
        request.Free()
    request = OURS.Allreduce_init(values, result, MPI.SUM, MPI.INFO_NULL)
    request.Free()
    OURS.Bcast(buf=result, root=SIZE - 1)
    np.testing.assert_array_equal(result, np.arange(4) + SIZE - 1)


def idup(comm):
    child, request = comm.Idup()
    request.Wait()
    return child


CHILDREN = {
    "Split": lambda comm: comm.Split(RANK % 2, -RANK),
    "Split_type": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Create": lambda comm: comm.Create(comm.Get_group()),
    "Create_group": lambda comm: comm.Create_group(comm.Get_group().Excl([])),
    "Dup": lambda comm: comm.Dup(),
    "Dup with info": lambda comm: comm.Dup(MPI.INFO_ENV),
    "Dup_with_info": lambda comm: comm.Dup_with_info(MPI.INFO_ENV),
    "Clone": lambda comm: comm.Clone(),
    "Idup": idup,
}


@pytest.mark.parametrize("make", CHILDREN.values(), ids=CHILDREN)
def test_children_are_of_the_class_and_inherit_the_choice(make):
    parent = OURS.Dup()
    parent.algorithm["Allreduce"] = "ring"
    child = make(parent)
    values, result, expected = np.arange(5) + RANK, np.zeros(5, int), np.zeros(5, int)
    child.Allreduce(values, result)
    MPI.Intracomm.Allreduce(child, values, expected)
    np.testing.assert_array_equal(result, expected)
    assert type(child) is pycoll.Comm and child.algorithm == {"allreduce": "ring"}
    child.algorithm["Allreduce"] = "tree"
    assert parent.algorithm == {"allreduce": "ring"} and OURS.algorithm == {}
    parent.Free()
    assert parent == MPI.COMM_NULL
    for form in FORMS:
        result[:] = 0
        run(child, "Allreduce", form, [values, result])
        np.testing.assert_array_equal(result, expected)
    child.Free()
    assert child == MPI.COMM_NULL and not child


def test_communicators_of_some_ranks():
    first = OURS.Get_group().Incl([0])
    for child in (
        OURS.Split(MPI.UNDEFINED if RANK else 3),
        OURS.Create(first),
        OURS.Create_group(first) if RANK == 0 else pycoll.Comm(),
        OURS.Split_type(MPI.UNDEFINED if RANK else MPI.COMM_TYPE_SHARED),
    ):
        assert (child == MPI.COMM_NULL) == (RANK > 0)
        if RANK == 0:
            assert type(child) is pycoll.Comm and child.size == 1
            result = np.zeros(2)
            child.Allreduce(np.ones(2), result)
            assert result.tolist() == [1, 1]
            child.Free()


def test_what_idup_gives_is_ready_for_nonblocking_calls():
    child, request = OURS.Idup()
    request.Wait()
    child.Ibarrier().Wait()
    child.Barrier()
    child.Free()


def test_the_same_communicator_is_not_duplicated():
    again = pycoll.Comm(OURS)
    assert again == OURS == WORLD and again.handle == WORLD.handle and again.algorithm is OURS.algorithm
    assert isinstance(again, MPI.Intracomm) and again.size == SIZE and again.Get_name() == WORLD.Get_name()


def test_topologies_stay_native():
    made = [
        OURS.Create_cart([SIZE], [True]),
        OURS.Create_graph([r + 1 for r in range(SIZE)], [(r + 1) % SIZE for r in range(SIZE)]),
        OURS.Create_dist_graph_adjacent([(RANK - 1) % SIZE], [(RANK + 1) % SIZE]),
    ]
    for comm, kind in zip(made, (MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm)):
        assert type(comm) is kind
        result = np.zeros(2, int)
        comm.Allreduce(np.ones(2, int), result)
        assert result.tolist() == [SIZE, SIZE]
        with pytest.raises(TypeError, match=r"without a topology.*stay MPI's own"):
            pycoll.Comm(comm)
    source, to = made[0].Shift(0, 1)
    assert made[0].sendrecv(RANK, to, source=source) == (RANK - 1) % SIZE
    for comm in made:
        comm.Free()


def test_intercommunicators_stay_native():
    if SIZE == 1:
        return
    half = OURS.Split(RANK % 2)
    inter = half.Create_intercomm(0, OURS, 1 - RANK % 2)
    assert type(inter) is MPI.Intercomm
    result = np.zeros(1, int)
    inter.Allreduce(np.ones(1, int), result)
    assert result[0] == inter.remote_size
    with pytest.raises(TypeError, match="takes an intracommunicator"):
        pycoll.Comm(inter)
    inter.Free()
    half.Free()


def test_what_is_no_communicator_is_refused():
    for wrong in (MPI.COMM_NULL, 3, "world", MPI.GROUP_EMPTY):
        with pytest.raises(TypeError, match="takes an intracommunicator"):
            pycoll.Comm(wrong)
    nothing = pycoll.Comm()
    assert nothing == MPI.COMM_NULL
    for use in (lambda: nothing.Barrier(), lambda: nothing.Ibarrier(), lambda: nothing.algorithm):
        with pytest.raises(TypeError, match="must be an intracommunicator"):
            use()


def test_small_letters_and_point_to_point_are_mpi4pys():
    assert OURS.allreduce(RANK) == sum(range(SIZE)) and OURS.bcast({"a": RANK}) == {"a": 0}
    assert OURS.gather(str(RANK), SIZE - 1) == ([str(r) for r in range(SIZE)] if RANK == SIZE - 1 else None)
    assert OURS.alltoall([RANK] * SIZE) == OURS.allgather(RANK) == list(range(SIZE))
    assert OURS.scatter(range(SIZE)) == RANK and OURS.scan(1) == RANK + 1
    OURS.barrier()
    got = np.zeros(2)
    OURS.Sendrecv(np.full(2, RANK), (RANK + 1) % SIZE, 0, got, (RANK - 1) % SIZE, 0)


def algorithm_told(caplog, comm, count, **options):
    caplog.clear()
    with caplog.at_level("INFO", "pycoll.algorithms"):
        comm.Allreduce(np.ones(count), np.empty(count), **options)
    assert len(caplog.records) <= 1
    return [word for word in caplog.text.replace(",", " ").split() if word in pycoll.algorithms("allreduce")]


def test_the_choice_takes_effect(caplog):
    comm = OURS.Dup()
    assert algorithm_told(caplog, comm, 1301) == ["recursive_doubling"]
    comm.algorithm["Allreduce"] = "ring"
    assert algorithm_told(caplog, comm, 1301) == ["ring"]
    assert algorithm_told(caplog, comm, 1301, algorithm="naive") == ["naive"]
    assert algorithm_told(caplog, comm, 1302) == ["ring"]
    del comm.algorithm["allreduce"]
    assert algorithm_told(caplog, comm, 1303) == ["recursive_doubling"]
    comm.Free()


def test_a_choice_changed_between_two_equal_calls_takes_effect(caplog):
    comm, values, result = OURS.Dup(), np.ones(1401), np.empty(1401)
    for name in ("ring", "tree", "naive", "double_tree"):
        comm.algorithm["Allreduce"] = name
        caplog.clear()
        with caplog.at_level("INFO", "pycoll.algorithms"):
            for _ in range(3):
                comm.Allreduce(values, result)
        assert [record.args[4] for record in caplog.records] == [name]
    comm.Free()


def test_wrong_choices():
    comm = OURS.Dup()
    with pytest.raises(ValueError, match=r"'fastest' is not one of .*naive, tree, ring"):
        comm.algorithm["Allreduce"] = "fastest"
    with pytest.raises(KeyError, match=r"'Allreduction' is not one of: .*bcast"):
        comm.algorithm["Allreduction"] = "ring"
    with pytest.raises(ValueError, match="'fastest' is not one of"):
        comm.Allreduce(np.ones(2), np.empty(2), algorithm="fastest")
    assert comm.algorithm == {}
    comm.algorithm["Reduce_scatter_block"] = "pairwise"
    assert comm.algorithm["reduce_scatter"] == "pairwise"
    comm.Free()


@pytest.mark.parametrize("method", METHODS)
def test_permuted_ranks(method):
    comms = OURS.Split(0, -RANK), THEIRS.Split(0, -RANK)
    rank = comms[0].rank
    assert rank == SIZE - 1 - RANK
    style = "[buf, count]" if method.endswith("v") else "buf"
    check(method, partial(call_of, method, rank, style, root=min(1, SIZE - 1)), FORMS, [None], comms)
    for comm in comms:
        comm.Free()


def test_a_communicator_freed_while_others_live():
    kept, values = OURS.Dup(), np.arange(3) + RANK
    expected = np.zeros(3, int)
    THEIRS.Allreduce(values, expected)
    for _ in range(20):
        freed = kept.Dup()
        freed.algorithm["Allreduce"] = "ring"
        for comm in (freed, kept):
            result = np.zeros(3, int)
            comm.Allreduce(values, result)
            np.testing.assert_array_equal(result, expected)
        freed.Free()
        with pytest.raises(TypeError, match="must be an intracommunicator"):
            freed.Allreduce(values, result)
        assert kept.algorithm == {}
    kept.Free()


def test_no_cross_talk():
    comms = [OURS, OURS.Dup(), OURS.Split(0, -RANK), pycoll.Comm(MPI.COMM_SELF)]
    results = [np.zeros(2, int) for _ in comms]
    requests = [
        comm.Iallreduce(np.arange(2) + RANK * i, result) for i, (comm, result) in enumerate(zip(comms, results))
    ]
    result = np.zeros(2, int)
    comms[1].Allreduce(np.ones(2, int), result)
    assert result.tolist() == [SIZE, SIZE]
    for request in reversed(requests):
        request.Wait()
    for i, (comm, result) in enumerate(zip(comms, results)):
        total = i * (sum(range(SIZE)) if comm.size == SIZE and i < 3 else RANK)
        assert result.tolist() == [total, total + comm.size]
    for comm in comms[1:3]:
        comm.Free()


INTS, FLOATS = np.zeros(2 * SIZE, np.intc), np.zeros(2 * SIZE)
FROZEN = np.zeros(2, np.intc)
FROZEN.flags.writeable = False
WRONG = [
    ("Bcast", lambda: []),
    ("Bcast", lambda: [3.0]),
    ("Bcast", lambda: [[INTS]]),
    ("Bcast", lambda: [[INTS, 1, 0, INT, 0]]),
    ("Bcast", lambda: [[INTS, "no such type"]]),
    ("Bcast", lambda: [[INTS, 2, "no such type"]]),
    ("Bcast", lambda: [[INTS, 2, 7]]),
    ("Bcast", lambda: [[INTS, -1, INT]]),
    ("Bcast", lambda: [[INTS, (1, -1), INT]]),
    ("Bcast", lambda: [[INTS, (1, 10**6), INT]]),
    ("Bcast", lambda: [[INTS, 1.5, INT]]),
    ("Bcast", lambda: [[np.zeros(3, "u1"), INT]]),
    ("Bcast", lambda: [[None, 3, INT]]),
    ("Bcast", lambda: [INTS, "zero"]),
    ("Bcast", lambda: [INTS, None]),
    ("Bcast", lambda: [INTS, 0, 0]),
    ("Allreduce", lambda: [INTS]),
    ("Allreduce", lambda: [INTS, None]),
    ("Allreduce", lambda: [INTS, MPI.IN_PLACE]),
    ("Allreduce", lambda: [INTS, np.zeros(1, np.intc)]),
    ("Allreduce", lambda: [INTS, FLOATS]),
    ("Allreduce", lambda: [INTS, [FLOATS, 2 * SIZE, MPI.DOUBLE]]),
    ("Allreduce", lambda: [[INTS, 1, INT], [INTS.copy(), 2, INT]]),
    ("Allreduce", lambda: [INTS, INTS.copy(), None]),
    ("Allreduce", lambda: [INTS, INTS.copy(), max]),
    ("Scan", lambda: [INTS, INTS[:1].copy()]),
    ("Exscan", lambda: [INTS, FLOATS]),
    ("Allgather", lambda: [INTS, None]),
    ("Allgather", lambda: [3, INTS]),
    ("Alltoall", lambda: [INTS, 5]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), [1] * (SIZE + 1), INT]]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), ([1] * SIZE, [0] * (SIZE + 1)), INT]]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), ["a"] * SIZE, INT]]),
    ("Alltoallv", lambda: [[INTS], INTS]),
    ("Alltoallw", lambda: [[INTS, [1] * SIZE, [0] * SIZE, [INT] * (SIZE + 1)], [INTS.copy(), [INT] * SIZE]]),
    ("Alltoallw", lambda: [[INTS], [INTS.copy(), [INT] * SIZE]]),
    ("Reduce_scatter", lambda: [INTS, INTS[:2].copy(), [3] * SIZE]),
    ("Reduce_scatter", lambda: [INTS, INTS[:2].copy(), [2] * (SIZE + 1)]),
    ("Reduce_scatter", lambda: [INTS, FLOATS[:2].copy(), [2] * SIZE]),
    ("Reduce_scatter", lambda: [MPI.IN_PLACE, INTS]),
    ("Reduce_scatter", lambda: [MPI.IN_PLACE, INTS, [3] * SIZE]),
    ("Reduce_scatter_block", lambda: [INTS, INTS[:1].copy()]),
    ("Reduce_scatter_block", lambda: [INTS, FLOATS[:2].copy()]),
    *([("Alltoall", lambda: [INTS[1:], INTS[1:].copy()])] if SIZE > 1 else []),
    *([("Scatter", lambda: [INTS, None])] if RANK else [("Gather", lambda: [INTS, None])]),
]


@pytest.mark.parametrize(("method", "arguments"), WRONG, ids=[f"{i}-{wrong[0]}" for i, wrong in enumerate(WRONG)])
def test_wrong_arguments(method, arguments):
    with pytest.raises((TypeError, ValueError, KeyError)) as theirs:
        getattr(THEIRS, method)(*arguments())
    for form in FORM_NAMES.values():
        with pytest.raises(theirs.type):
            getattr(OURS, form(method))(*arguments())


@pytest.mark.parametrize("options", [{"root": 0, "tag": 3}, {"buf": INTS}, {"info": 3}], ids=str)
def test_arguments_of_no_meaning(options):
    for name in ("Bcast", "Ibcast"):
        with pytest.raises(TypeError):
            getattr(OURS, name)(INTS, **options)


def test_wrong_roots_and_wrong_memory():
    for root in (-1, SIZE, MPI.PROC_NULL):
        with pytest.raises(ValueError, match="is not a rank of the communicator"):
            OURS.Bcast(INTS, root)
    for wrong in (FROZEN, np.zeros(4, np.intc)[::2]):
        with pytest.raises((ValueError, BufferError)):
            OURS.Allreduce(FROZEN.copy(), wrong)


@st.composite
def drawn_calls(draw):
    method = draw(st.sampled_from(METHODS))
    style = draw(st.sampled_from(styles_of(method)))
    names = ["int"]
    if method in MOVES and style.endswith("type]"):
        names = [name for name in TYPES if "count" in style or name != "indexed"]
    types = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    algorithm = draw(st.sampled_from([None, *pycoll.algorithms(pycoll.settings.primitive_called(method))]))
    counts = draw(st.lists(st.integers(0, 60), min_size=SIZE, max_size=SIZE))
    root, gap = draw(st.integers(0, SIZE - 1)), draw(st.integers(0, 5))
    inside = method != "Bcast" and draw(st.booleans())
    return method, style, types, root, counts, gap, inside, draw(st.sampled_from(FORMS)), algorithm


@settings(max_examples=150 if SIZE < 5 else 50)
@given(case=drawn_calls())
def test_drawn(together, case):
    together(check_drawn, *case)


def check_drawn(method, style, types, root, counts, gap, inside, form, algorithm):
    def make():
        return call_of(method, RANK, style, types, root, counts, gap, inside, MPI.IN_PLACE)

    check(method, make, [form], [algorithm])


def test_after_all_this_the_world_is_in_order():
    assert OURS.algorithm == {} and WORLD.allreduce(1) == SIZE
