"""Collectives whose blocks have lengths of their own, against MPI's native ones on the same input."""

from contextlib import contextmanager
from itertools import accumulate

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll import engine, settings
from pycoll.schedule import PRIMITIVES

from .native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi

VARYING = ["scatterv", "gatherv", "allgatherv", "alltoallv"]
PAIRS = [(name, algorithm) for name in VARYING for algorithm in [*pycoll.algorithms(name), "native"]]
STYLES = ["side by side", "gaps", "any order"]
FORMS = ["four items", "tuple", "tuple and type", "counts"]
NUMBERS = np.random.default_rng(5)  # the same on all ranks
TABLES = {  # the elements that rank i has for rank j; the first row is every other primitive's counts
    "equal": np.full((SIZE, SIZE), 3),
    "drawn": NUMBERS.integers(0, 60, (SIZE, SIZE)),
    "zeros": NUMBERS.integers(0, 60, (SIZE, SIZE)) * NUMBERS.integers(0, 2, (SIZE, SIZE)),
    "nothing": np.zeros((SIZE, SIZE), int),
    "all on one": np.eye(SIZE, dtype=int)[[SIZE // 2] * SIZE] * 500,
}
FILL = 77


@contextmanager
def cut(segment):
    before = settings.SEGMENT, settings.PIPELINE
    engine.configure(segment=segment, pipeline=segment)
    try:
        yield
    finally:
        engine.configure(segment=before[0], pipeline=before[1])


@pytest.fixture
def short_segments():
    with cut(64):
        yield


def lay(counts, style, seed=0):
    """Displacements of blocks, and the length of a buffer for them."""
    numbers = np.random.default_rng([seed, RANK])
    order = numbers.permutation(SIZE) if style == "any order" else np.arange(SIZE)
    gaps = np.zeros(SIZE + 1, int) if style == "side by side" else numbers.integers(0, 4, SIZE + 1)
    starts = accumulate((counts[i] + gap for i, gap in zip(order, gaps[1:])), initial=gaps[0])
    displs = np.zeros(SIZE, int)
    displs[order] = list(starts)[:SIZE]
    return displs.tolist(), int(sum(counts) + sum(gaps))


def spec(buffer, counts, displs, form):
    datatype = MPI.Datatype.fromcode(buffer.dtype.char)
    return {
        "four items": [buffer, counts, displs, datatype],
        "tuple": [buffer, (counts, displs)],
        "tuple and type": (buffer, (np.array(counts), tuple(displs)), datatype),
        "counts": [buffer, counts],
    }[form]


def check(primitive, algorithm, table, root=0, style="any order", form="four items", inside=False, dtype="f8"):
    style = "side by side" if form == "counts" else style
    kind = PRIMITIVES[primitive]
    if primitive == "alltoallv" and inside:
        table = np.triu(table) + np.triu(table, 1).T
    gives, takes = (table[RANK], table[:, RANK]) if primitive == "alltoallv" else (table[0], table[0])
    gives, takes = gives.tolist(), takes.tolist()
    at_root = not kind.rooted or RANK == root

    def side(all_blocks, counts, there, seed):
        if not there:
            return None, None
        if not all_blocks:
            buffer = np.full(counts[RANK], FILL, dtype)
            return buffer, buffer
        displs, total = lay(counts, style, seed)
        buffer = np.full(total, FILL, dtype)
        return buffer, spec(buffer, counts, displs, form)

    recv, recv_spec = side(kind.gives_all, takes, at_root or not kind.gives_all, 1)
    send, send_spec = side(kind.takes_all, gives, at_root or not kind.takes_all, 2)
    if inside and primitive == "alltoallv":
        displs, total = lay(takes, style, 1)
        send, send_spec = (buffer := np.full(total, FILL, dtype)), spec(buffer, gives, displs, form)
    if send is not None:
        send[...] = np.random.default_rng([3, RANK]).integers(0, 70, send.size)
    before = None if send is None else send.copy()
    options = {"root": root} if kind.rooted else {}

    getattr(WORLD, primitive.capitalize())(send_spec, recv_spec, **options)
    expected = None if recv is None else recv.copy()
    if recv is not None:
        recv[...] = FILL
    if inside and at_root:
        if primitive == "alltoallv":
            recv[...] = send
            gaps = np.ones(recv.size, bool)
            for count, displ in zip(takes, lay(takes, style, 1)[0]):
                gaps[displ : displ + count] = False
            expected[gaps] = send[gaps]
        elif primitive != "scatterv":
            start = lay(takes, style, 1)[0][RANK] if style != "side by side" else sum(takes[:RANK])
            recv[start : start + takes[RANK]] = send
        send_spec, recv_spec = (send_spec, MPI.IN_PLACE) if primitive == "scatterv" else (MPI.IN_PLACE, recv_spec)

    for _ in range(2):  # the second time with all that the first one kept
        result = getattr(pycoll, primitive)(send_spec, recv_spec, **options, algorithm=algorithm)
        if inside and primitive == "alltoallv":
            break
    if send is not None:
        np.testing.assert_array_equal(send, before)
    if expected is None or (inside and at_root and primitive == "scatterv"):
        assert result is None
    else:
        assert result is recv
        np.testing.assert_array_equal(recv, expected)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_algorithm_and_root(primitive, algorithm):
    for root in range(SIZE if PRIMITIVES[primitive].rooted else 1):
        for table in list(TABLES.values())[: None if SIZE < 5 else 3]:
            for inside in (False, True):
                check(primitive, algorithm, table, root, inside=inside)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("primitive", VARYING)
def test_every_specification(primitive, form):
    for style in STYLES:
        for dtype in ("f8", "i2", "u1"):
            check(primitive, None, TABLES["drawn"], SIZE - 1, style, form, dtype=dtype)


@st.composite
def cases(draw):
    primitive, algorithm = draw(st.sampled_from(PAIRS))
    counts = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 800))
    table = draw(st.lists(counts, min_size=SIZE * SIZE, max_size=SIZE * SIZE))
    root, inside = draw(st.integers(0, SIZE - 1)), draw(st.booleans())
    style, form = draw(st.sampled_from(STYLES)), draw(st.sampled_from(FORMS))
    dtype, segment = draw(st.sampled_from(["f8", "i2", "u1"])), draw(st.integers(8, 4000))
    return segment, primitive, algorithm, np.reshape(table, (SIZE, SIZE)), root, style, form, inside, dtype


@hypothesis.settings(max_examples=150 if SIZE < 5 else 30)
@hypothesis.given(case=cases())
def test_drawn(together, case):
    together(check_cut, *case)


def check_cut(segment, *case):
    with cut(segment):
        check(*case)


@pytest.mark.parametrize("primitive", VARYING)
def test_above_every_eager_limit(primitive):
    """Megabytes, where schedules that count on buffering would hang; one rank with nothing."""
    count = 1 << (18 if SIZE < 5 else 16)
    table = np.full((SIZE, SIZE), count)
    table[:, 0], table[0, -1] = 0, count + 5
    with cut(2 * count):
        for algorithm in pycoll.algorithms(primitive):
            check(primitive, algorithm, table, SIZE // 2)


def test_results_are_allocated():
    counts = list(range(SIZE))
    mine = np.full(RANK, float(RANK))
    expected = np.repeat(np.arange(float(SIZE)), counts)
    np.testing.assert_array_equal(pycoll.allgatherv(mine, [None, counts]), expected)
    gathered = pycoll.gatherv(mine, [None, counts] if RANK == 0 else None)
    assert (gathered is None) if RANK else (gathered == expected).all()
    exchanged = pycoll.alltoallv([np.full(SIZE * RANK, float(RANK)), [RANK] * SIZE], [None, counts])
    np.testing.assert_array_equal(exchanged, expected)
    scattered = pycoll.scatterv([expected, counts], np.empty(RANK) if RANK < SIZE - 1 else None, SIZE - 1)
    np.testing.assert_array_equal(scattered, mine)
    assert scattered.dtype == exchanged.dtype == float
    assert pycoll.allgatherv(np.ones(2, "S3"), [None, 2]).tolist() == [b"1"] * 2 * SIZE
    assert pycoll.reduce_scatter(np.ones(sum(counts), "i4"), recvcounts=counts).tolist() == [SIZE] * RANK


def test_blocks_of_a_datatype_with_gaps():
    """Every second number is received; what lies between stays."""
    pair = MPI.DOUBLE.Create_resized(0, 16).Commit()
    counts = [2 * (i % 2) + 1 for i in range(SIZE)]
    mine, result = np.full(counts[RANK], RANK + 1.0), np.zeros(2 * sum(counts) + 1)
    for algorithm in pycoll.algorithms("allgatherv"):
        result[...] = 0
        assert pycoll.allgatherv(mine, [result, counts, None, pair], algorithm=algorithm) is result
        np.testing.assert_array_equal(result[:-1:2], np.repeat(np.arange(1.0, SIZE + 1), counts))
        assert not result[1::2].any()
    pair.Free()


TYPES = [MPI.DOUBLE, MPI.SHORT, MPI.BYTE]


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("algorithm", pycoll.algorithms("alltoallw"))
def test_alltoallw(algorithm):
    for name, table in TABLES.items():
        for inside in (False, True):
            counted = np.triu(table) + np.triu(table, 1).T if inside else table
            types = [TYPES[(RANK + j) % 3] for j in range(SIZE)]
            send, recv = (
                all_bytes(counts, types, seed=0 if inside else seed)
                for seed, counts in enumerate((counted[RANK], counted[:, RANK]))
            )
            send[0][...] = np.random.default_rng([9, RANK]).integers(0, 200, send[0].size)
            before, started = send[0].copy(), recv[0].copy()
            if inside:  # the gaps too
                recv[0][...] = started = send[0].copy()
            native_alltoallw(send, recv)
            expected, recv[0][...] = recv[0].copy(), started
            result = pycoll.alltoallw(MPI.IN_PLACE if inside else send, recv, algorithm=algorithm)
            assert result is recv[0], name
            np.testing.assert_array_equal(result, expected, name)
            np.testing.assert_array_equal(send[0], before)


def native_alltoallw(send, recv):
    if SIZE > 1:
        WORLD.Alltoallw(send, recv)
    else:  # where Open MPI 5.0.11 multiplies displacements by the datatype's extent, and writes past the buffer
        (source, counts, [start], [datatype]), (target, _, [to], _) = send, recv
        length = counts[0] * datatype.size
        target[to : to + length] = source[start : start + length]


def all_bytes(counts, types, seed):
    """Blocks of these datatypes, in any order, with gaps; displacements in bytes."""
    displs, total = lay([int(n) * t.size for n, t in zip(counts, types)], "any order", seed)
    return [np.full(total, FILL, "u1"), counts.tolist(), displs, types]


def test_alltoallw_by_types_alone_and_with_gaps():
    """One element of a type at the buffer's start each: the whole is cut by subarrays, as in a transposition."""
    rows = np.arange(4.0 * SIZE * SIZE).reshape(2 * SIZE, 2 * SIZE)
    mine = rows[2 * RANK : 2 * RANK + 2].copy()
    outgoing = [MPI.DOUBLE.Create_subarray([2, 2 * SIZE], [2, 2], [0, 2 * j]).Commit() for j in range(SIZE)]
    incoming = [MPI.DOUBLE.Create_subarray([2 * SIZE, 2], [2, 2], [2 * j, 0]).Commit() for j in range(SIZE)]
    columns = np.zeros((2 * SIZE, 2))
    for algorithm in pycoll.algorithms("alltoallw"):
        columns[...] = 0
        assert pycoll.alltoallw([mine, outgoing], [columns, incoming], algorithm=algorithm) is columns
        np.testing.assert_array_equal(columns, rows[:, 2 * RANK : 2 * RANK + 2])
    for datatype in outgoing + incoming:
        datatype.Free()


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("algorithm", pycoll.algorithms("reduce_scatter"))
def test_reduce_scatter_by_counts(algorithm):
    for op, handle in (("sum", MPI.SUM), ("max", MPI.MAX), ("bxor", MPI.BXOR)):
        for table in TABLES.values():
            counts = table[0].tolist()
            send = np.random.default_rng([4, RANK]).integers(0, 1000, sum(counts))
            before, expected = send.copy(), np.empty(counts[RANK], send.dtype)
            WORLD.Reduce_scatter(send, expected, counts, handle)
            recv = np.empty_like(expected)
            assert pycoll.reduce_scatter(send, recv, op, recvcounts=counts, algorithm=algorithm) is recv
            allocated = pycoll.reduce_scatter(send, op=op, recvcounts=np.array(counts), algorithm=algorithm)
            np.testing.assert_array_equal(send, before)
            inside = pycoll.reduce_scatter(MPI.IN_PLACE, send, handle, recvcounts=counts, algorithm=algorithm)
            assert np.shares_memory(inside, send) or not inside.size
            for result in (recv, allocated, inside):
                np.testing.assert_array_equal(result, expected)


def compose(left, right, datatype):
    """Maps x -> a x + b, a and b in the halves of an integer: associative, not commutative."""
    first, then = (np.frombuffer(buffer, "i4").reshape(-1, 2) for buffer in (left, right))
    a, b = first.T.copy()
    then[:, 1] += then[:, 0] * b
    then[:, 0] *= a


@pytest.mark.usefixtures("short_segments")
def test_reduce_scatter_by_counts_keeps_rank_order():
    op = MPI.Op.Create(compose, commute=False)
    counts = [40 * (i % 3) for i in range(SIZE)]
    maps = np.random.default_rng(RANK).integers(-3, 4, (sum(counts), 2)).astype("i4")
    a, b = np.ones(sum(counts), "i4"), np.zeros(sum(counts), "i4")
    for theirs in WORLD.allgather(maps):
        a, b = theirs[:, 0] * a, theirs[:, 0] * b + theirs[:, 1]
    mine = slice(sum(counts[:RANK]), sum(counts[: RANK + 1]))
    for algorithm in (None, "naive", "tree"):
        result = pycoll.reduce_scatter(maps.view("i8").reshape(-1), op=op, recvcounts=counts, algorithm=algorithm)
        np.testing.assert_array_equal(result.view("i4").reshape(-1, 2), np.stack([a, b], axis=1)[mine])
    wrong(ValueError, "rank order", "reduce_scatter", maps.view("i8"), None, op, recvcounts=counts, algorithm="ring")
    op.Free()


def wrong(error, pattern, primitive, *arguments, **options):
    with pytest.raises(error, match=pattern):
        getattr(pycoll, primitive)(*arguments, **options)


ONE = np.ones(1)
ROOM = np.full(2 * SIZE, -1.0)
ONES = [1] * SIZE


@pytest.mark.parametrize(
    "error, pattern, counts",
    [
        (ValueError, rf"counts has {SIZE + 1} entries, .*{SIZE}", [1] * (SIZE + 1)),
        (ValueError, rf"counts has {SIZE - 1} entries, .*{SIZE}", [1] * (SIZE - 1)),
        (ValueError, "counts=.*negative", [1] * (SIZE - 1) + [-1]),
        (TypeError, "counts=.*integers", [1.0] * SIZE),
        (TypeError, "counts=.*integers", ["1"] * SIZE),
        (ValueError, f"displs has {SIZE + 1} entries", (ONES, range(SIZE + 1))),
        (ValueError, "displs=.*negative", (ONES, range(-1, SIZE - 1))),
        (TypeError, "displs=.*integers", (ONES, [0.5] * SIZE)),
    ],
)
def test_wrong_counts(error, pattern, counts):
    wrong(error, pattern, "allgatherv", ONE, [ROOM, counts])
    wrong(error, pattern, "alltoallv", [ROOM.copy(), counts], [ROOM, ONES])
    wrong(error, pattern, "alltoallv", [ROOM.copy(), ONES], [ROOM, counts])
    if RANK == 0:
        wrong(error, pattern, "gatherv", ONE, [ROOM, counts])
        wrong(error, pattern, "scatterv", [ROOM, counts], ONE.copy())
    if isinstance(counts, list):
        wrong(error, "recv" + pattern, "reduce_scatter", ROOM, recvcounts=counts)
        wrong(error, pattern, "allgatherv", ONE, [None, counts])
        types = [MPI.DOUBLE] * SIZE
        wrong(error, pattern, "alltoallw", [ROOM.copy(), counts, [0] * SIZE, types], [ROOM, ONES, ONES, types])


@pytest.mark.parametrize("bad", [([1] * SIZE, [*range(SIZE - 1), 2 * SIZE]), [1] * (SIZE - 1) + [SIZE + 2]])
def test_blocks_that_lead_out_of_the_buffer(bad):
    mine = np.ones(bad[RANK] if isinstance(bad, list) else 1)
    wrong(ValueError, "recvbuf.*bytes", "allgatherv", mine, [ROOM, bad])
    wrong(ValueError, "sendbuf.*bytes", "alltoallv", [ROOM.copy(), bad], [np.empty(4 * SIZE), bad])
    if RANK == 0:
        wrong(ValueError, "recvbuf.*bytes", "gatherv", mine, [ROOM, bad])
        wrong(ValueError, "sendbuf.*bytes", "scatterv", [ROOM, bad], mine)
    assert (ROOM == -1).all()


def test_other_blocks_that_do_not_fit():
    types = [MPI.DOUBLE] * SIZE
    far = [ROOM, ONES, [8 * i for i in range(SIZE - 1)] + [ROOM.nbytes - 4], types]
    wrong(ValueError, "recvbuf.*bytes", "alltoallw", [ROOM.copy(), ONES, list(range(0, 8 * SIZE, 8)), types], far)
    wrong(ValueError, "types has", "alltoallw", [ROOM, types[1:]], [ROOM, types])
    wrong(ValueError, "sendbuf.*recvcounts", "reduce_scatter", ROOM, recvcounts=ONES)
    wrong(ValueError, "recvbuf.*recvcounts", "reduce_scatter", MPI.IN_PLACE, ROOM, recvcounts=ONES)
    wrong(ValueError, "recvbuf has 3 elements", "reduce_scatter", ROOM, np.empty(3), recvcounts=[2] * SIZE)


def test_blocks_that_overlap():
    if SIZE > 1:
        for counts, displs in ((ONES, [0] * SIZE), ([2] * SIZE, range(SIZE)), ([2] * SIZE, range(SIZE, 0, -1))):
            mine = np.ones(counts[RANK])
            wrong(ValueError, "recvbuf.*overlap", "allgatherv", mine, [ROOM, (counts, displs)])
            many = np.ones(2 * SIZE)
            wrong(ValueError, "recvbuf.*overlap", "alltoallv", [many, counts], [ROOM, counts, displs, MPI.DOUBLE])
            wrong(ValueError, "recvbuf.*overlap", "alltoallv", MPI.IN_PLACE, [ROOM, (counts, displs)])
            if RANK == 0:
                wrong(ValueError, "recvbuf.*overlap", "gatherv", mine, [ROOM, (counts, displs)])
    wrong(ValueError, "sendbuf and recvbuf overlap", "alltoallv", [ROOM, [2] * SIZE], [ROOM, [2] * SIZE])
    wrong(ValueError, "sendbuf and recvbuf overlap", "allgatherv", ROOM[:1], [ROOM, ONES])


def test_what_is_sent_may_overlap_and_share_a_buffer():
    """Blocks are only read; and one array may be sent from and received in, at other places."""
    displs = [0] * SIZE
    result = pycoll.alltoallv([np.full(1, float(RANK)), (ONES, displs)], [None, ONES])
    np.testing.assert_array_equal(result, np.arange(SIZE))
    if RANK == 0:
        np.testing.assert_array_equal(pycoll.scatterv([np.full(1, 5.0), (ONES, displs)]), [5.0])
    else:
        np.testing.assert_array_equal(pycoll.scatterv(None, np.empty(1)), [5.0])
    both = np.full(2 * SIZE, float(RANK))
    pycoll.alltoallv([both, (ONES, range(0, 2 * SIZE, 2))], [both, (ONES, range(1, 2 * SIZE, 2))])
    np.testing.assert_array_equal(both[1::2], np.arange(SIZE))
    assert (both[::2] == RANK).all()


def test_a_block_of_another_size_for_oneself():
    other = [1 + (i == RANK) for i in range(SIZE)]
    less, more = (f"{sent} bytes by sendbuf.* {received} by recvbuf" for sent, received in ((8, 16), (16, 8)))
    wrong(ValueError, less, "allgatherv", ONE, [ROOM, other])
    wrong(ValueError, more, "alltoallv", [ROOM.copy(), other], [ROOM, ONES])
    if RANK == 0:
        wrong(ValueError, less, "gatherv", ONE, [ROOM, other])
        wrong(ValueError, less, "scatterv", [ROOM, ONES], np.empty(2))


def test_missing_and_unfit_receive_buffers():
    wrong(TypeError, "recvbuf=None", "allgatherv", ONE)
    wrong(TypeError, "recvbuf=None", "alltoallv", [ROOM, ONES])
    wrong(TypeError, "recvbuf=None", "alltoallv", MPI.IN_PLACE)
    wrong(TypeError if RANK == 0 else ValueError, "recvbuf=None|IN_PLACE", "gatherv", MPI.IN_PLACE)
    if RANK:
        wrong(TypeError, "recvbuf=None", "scatterv", None)
        wrong(ValueError, "recvbuf=MPI.IN_PLACE is not allowed", "scatterv", None, MPI.IN_PLACE)
    else:
        wrong(TypeError, "recvbuf=None", "gatherv", ONE)
    readonly = ROOM.copy()
    readonly.flags.writeable = False
    wrong(ValueError, "recvbuf is read-only", "allgatherv", ONE, [readonly, ONES])
    wrong(ValueError, "recvbuf is not contiguous", "allgatherv", ONE, [np.empty(4 * SIZE)[::2], ONES])
    wrong(ValueError, "recvbuf=MPI.IN_PLACE is not allowed", "allgatherv", ONE, MPI.IN_PLACE)
    wrong(ValueError, "recvbuf has 0 bytes", "allgatherv", MPI.IN_PLACE, [None, ONES])


def test_missing_send_buffers():
    """Also where there is nothing to receive here, while others wait for their blocks."""
    if RANK == 0:
        wrong(TypeError, "sendbuf", "scatterv", None, ONE.copy())
        wrong(TypeError, "sendbuf", "scatterv", None, np.empty(0))
    wrong(TypeError, "sendbuf", "gatherv", None, [None, ONES])
    wrong(TypeError, "sendbuf", "allgatherv", None, [ROOM, ONES])
    wrong(TypeError, "sendbuf", "allgatherv", None, [ROOM, [0] * SIZE])
    wrong(TypeError, "sendbuf", "alltoallv", None, [ROOM, ONES])


def test_unequal_dtypes():
    """As in the collectives of equal blocks; a datatype that is named is the caller's word."""
    single, double = np.ones(2, "f4"), [np.empty(SIZE), ONES]
    wrong(TypeError, "sendbuf has dtype float32, recvbuf has dtype float64", "allgatherv", single, double)
    wrong(TypeError, "float32.*float64", "alltoallv", [np.ones(2 * SIZE, "f4"), [2] * SIZE], double)
    counts = [8] * SIZE
    result = pycoll.allgatherv([single, 8, MPI.BYTE], [double[0], counts, None, MPI.BYTE])
    assert (result.view("f4") == 1).all()


def test_a_tuple_is_counts_and_displacements_also_where_memory_is_allocated():
    """One number is for all ranks; the result reaches to the last block's end, with zeros in the gaps."""
    np.testing.assert_array_equal(pycoll.allgatherv(ONE, [None, (1, 2)]), [*[1, 0] * (SIZE - 1), 1])
    displs = list(range(SIZE, 0, -1))
    exchanged = pycoll.alltoallv([np.full(SIZE, 1.0 + RANK), ONES], [None, (ONES, displs)])
    np.testing.assert_array_equal(exchanged, [0, *displs])
    gathered = pycoll.gatherv(ONE + RANK, (None, (ONES, displs)))
    assert (gathered is None) if RANK else gathered.tolist() == [0, *displs]


def test_after_all_these_errors_the_world_is_in_order():
    for primitive in VARYING:
        check(primitive, None, TABLES["drawn"])
