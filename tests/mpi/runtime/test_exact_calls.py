"""Reductions with ``op="exact_sum"`` give the same bits in all forms, by all algorithms, as exact arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from tests.drawn import examples
from tests.exact_arithmetic import rounded
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
OURS = pycoll.Comm(WORLD)
DTYPES = ["f4", "f8", "c8", "c16"]
FUNCTIONS = ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"]


def contributions(count, dtype, seed=0):
    """What each rank contributes: numbers of very different sizes that nearly cancel."""
    rng, real = np.random.default_rng([count, seed]), np.empty(0, dtype).real.dtype
    rows = rng.standard_normal((SIZE, count, np.dtype(dtype).itemsize // real.itemsize))
    rows = (rows * 2.0 ** rng.integers(-40, 40, rows.shape)).astype(real)
    rows[SIZE // 2 :] -= rows[: SIZE - SIZE // 2]
    return rows.reshape(SIZE, -1).view(dtype)


def sums(rows):
    """The exact sum of rows."""
    real = rows.view(rows.real.dtype)
    add = math.fsum if real.dtype == np.float64 else rounded
    return np.array([add(column) for column in real.T], real.dtype).view(rows.dtype)


def same(found, expected):
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, SIZE, 7, 1000])
def test_all_primitives(dtype, count):
    rows = contributions(count, dtype)
    mine, all_ranks, root = rows[RANK].copy(), sums(rows), SIZE - 1
    assert same(pycoll.allreduce(mine, op=pycoll.EXACT_SUM), all_ranks)
    assert same(pycoll.scan(mine, op="exact_sum"), sums(rows[: RANK + 1]))
    before = pycoll.exscan(mine, op="exact_sum")
    assert RANK == 0 or same(before, sums(rows[:RANK]))
    at_root = pycoll.reduce(mine, op="exact_sum", root=root)
    assert same(at_root, all_ranks) if RANK == root else at_root is None
    counts = [count // SIZE + (rank < count % SIZE) for rank in range(SIZE)]
    own = slice(sum(counts[:RANK]), sum(counts[: RANK + 1]))
    assert same(pycoll.reduce_scatter(mine, op="exact_sum", recvcounts=counts), all_ranks[own])
    assert mine.tobytes() == rows[RANK].tobytes()


def forms(name, starts):
    """The blocking, the nonblocking and the persistent form of a function or method, which return when complete."""
    owner, nonblocking = (OURS, f"I{name.lower()}") if name[0].isupper() else (pycoll, f"i{name}")

    def persistent(*given, **options):
        with getattr(owner, f"{name}_init")(*given, **options) as request:
            for _ in range(starts):
                request.Start()
                request.Wait()

    return (
        getattr(owner, name),
        lambda *given, **options: getattr(owner, nonblocking)(*given, **options).Wait(),
        persistent,
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [1, 11])
@pytest.mark.parametrize("name", [*FUNCTIONS, *map(str.capitalize, FUNCTIONS), "Reduce_scatter_block"])
def test_all_forms(name, count, in_place):
    """Ranks without a result, such as rank 0 of an exscan, keep their receive buffers as they are."""
    primitive, root = name.lower(), SIZE - 1
    counts = [count + rank % 2 * (primitive == "reduce_scatter") for rank in range(SIZE)]
    rows = contributions(sum(counts) if "scatter" in primitive else count, "f8")
    last = {"scan": RANK + 1, "exscan": RANK}.get(primitive, SIZE)
    own = slice(sum(counts[:RANK]), sum(counts[: RANK + 1])) if "scatter" in primitive else slice(None)
    has_result = RANK == root if primitive == "reduce" else last > 0
    options = {"reduce": {"root": root}, "reduce_scatter": {"recvcounts": counts}}.get(primitive, {})
    for call in forms(name, 1 if in_place else 3):
        mine = rows[RANK].copy()
        recvbuf = mine.copy() if in_place else np.full(len(mine[own]), 7.0)
        expected = sums(rows[:last])[own] if has_result else recvbuf.copy()
        sendbuf = MPI.IN_PLACE if in_place and (primitive != "reduce" or RANK == root) else mine
        given = [sendbuf, [recvbuf, MPI.DOUBLE] if name[0].isupper() else recvbuf]
        call(*given, op="exact_sum", **options)
        assert same(recvbuf[: len(expected)], expected)
        assert same(mine, rows[RANK])


def test_lists_and_views():
    rows = contributions(11, "f8")
    mine, expected = rows[RANK].copy(), sums(rows)
    lists = [mine[:4].copy(), mine[4:].reshape(1, -1).copy()]
    pycoll.allreduce(lists, op="exact_sum")
    assert same(np.concatenate([each.reshape(-1) for each in lists]), expected)
    assert same(pycoll.allreduce(np.repeat(mine, 2)[::2], op="exact_sum"), expected)


def test_all_nan_have_the_bits_of_np_nan():
    for sign in -1, 1:
        mine = np.copysign([np.nan, np.inf, 1.0], sign * (-1) ** RANK)
        found = pycoll.allreduce(mine, op="exact_sum")
        assert same(found[:1], np.array([np.nan]))
        assert same(found[1:2], np.array([np.nan if SIZE > 1 else sign * np.inf]))


@pytest.mark.parametrize("algorithm", ["naive", "tree", "ring", "two_level", "native"])
def test_all_algorithms(algorithm):
    rows = contributions(100, "f8")
    assert same(pycoll.allreduce(rows[RANK], op="exact_sum", algorithm=algorithm), sums(rows))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4))
@examples(10)
def test_several_in_flight(counts):
    rows = [contributions(count, "f8", seed) for seed, count in enumerate(counts)]
    requests = [pycoll.iallreduce(each[RANK].copy(), op="exact_sum") for each in rows]
    for request, each in zip(reversed(requests), reversed(rows)):
        assert same(request.wait(), sums(each))


def test_the_number_of_ranks_does_not_matter():
    """Zeros, contributed by more ranks, change nothing."""
    rows = contributions(50, "f8")
    half = WORLD.Split(RANK < (SIZE + 1) // 2, RANK)
    some = pycoll.allreduce(rows[RANK], op="exact_sum", comm=half)
    rest = pycoll.allreduce(rows[RANK] * (RANK < (SIZE + 1) // 2), op="exact_sum")
    assert RANK >= (SIZE + 1) // 2 or same(some, rest)
    half.Free()


@pytest.mark.parametrize("check", [False, True])
def test_ranks_in_one_process(check, monkeypatch):
    monkeypatch.setattr(settings, "CHECK", check)
    rows = contributions(20, "f8")
    for found in pycoll.local(lambda comm: pycoll.allreduce(rows[comm.rank], op="exact_sum", comm=comm), ranks=SIZE):
        assert same(found, sums(rows))


def test_explain_names_the_calls():
    with pytest.raises(ValueError, match="explain those, for example alltoall"):
        pycoll.explain("allreduce", nbytes=8, op="exact_sum")


@pytest.mark.parametrize(
    ("values", "algorithm", "error", "text"),
    [
        (np.ones(3, int), None, TypeError, "op=EXACT_SUM is not defined for dtype int64; SUM of integers is exact"),
        (np.ones(3, np.float16), None, TypeError, "only for single and double precision"),
        (
            np.ones(3),
            "rabenseifner",
            ValueError,
            "is not one of the algorithms of alltoall: naive, tree",
        ),
    ],
)
def test_errors(values, algorithm, error, text):
    with pytest.raises(error, match=text):
        pycoll.allreduce(values, op="exact_sum", algorithm=algorithm)
