"""Collectives with blocks of different lengths, compared with the native MPI ones on the same input."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES
from tests.drawn import examples
from tests.mpi.native import MANY, RANK, SIZE, WORLD
from tests.mpi.varying import FILL, FORMS, PAIRS, STYLES, TABLES, VARYING, check, compose, cut, lay, wrong

pytestmark = pytest.mark.mpi


@pytest.fixture
def short_segments():
    with cut(64):
        yield


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_algorithm_and_root(primitive, algorithm):
    for root in range(SIZE if PRIMITIVES[primitive].rooted else 1):
        for table in list(TABLES.values())[: 3 if MANY else None]:
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


@examples(30 if MANY else 150)
@hypothesis.given(case=cases())
def test_drawn(together, case):
    together(check_cut, *case)


def check_cut(segment, *case):
    with cut(segment):
        check(*case)


@pytest.mark.parametrize("primitive", VARYING)
def test_above_every_eager_limit(primitive):
    """Blocks of megabytes, for which schedules that depend on buffering would hang; one rank has an empty block."""
    count = 1 << (16 if MANY else 18)
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
    """Only every second element is written; the gaps are left unchanged."""
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
            if inside:  # copy the gaps as well
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
    else:  # Open MPI 5.0.11 would multiply displacements by the extent, and write past the buffer
        (source, counts, [start], [datatype]), (target, _, [to], _) = send, recv
        length = counts[0] * datatype.size
        target[to : to + length] = source[start : start + length]


def all_bytes(counts, types, seed):
    """Return a specification of blocks of these datatypes, in any order, with gaps; displacements are in bytes."""
    displs, total = lay([int(n) * t.size for n, t in zip(counts, types)], "any order", seed)
    return [np.full(total, FILL, "u1"), counts.tolist(), displs, types]


def test_alltoallw_by_types_alone_and_with_gaps():
    """With [buf, types], each block is one element of a subarray type at the start of the buffer."""
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
