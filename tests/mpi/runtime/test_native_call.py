"""Collectives of MPI that the core calls: the second and third calls of a kind follow a plan."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll import core

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(bool(core.problem), reason="the core was not compiled")]

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
COUNTS = [1 + rank % 3 for rank in range(SIZE)]
ROOT = SIZE - 1


@pytest.fixture(scope="module")
def comms():
    ours = pycoll.Comm(WORLD.Dup()).Create_cart([SIZE], [True])
    theirs = WORLD.Create_cart([SIZE], [True])
    yield ours, theirs
    ours.Free()
    theirs.Free()


def filled(count, dtype, round):
    return ((np.arange(count) + 3 * RANK + round) % 7).astype(dtype)


def at_root(array):
    return array if RANK == ROOT else None


CALLS = {
    "Allreduce": lambda dtype, i: (filled(5, dtype, i), np.zeros(5, dtype)),
    "Allreduce in place": lambda dtype, i: (MPI.IN_PLACE, filled(5, dtype, i)),
    "Reduce": lambda dtype, i: (filled(5, dtype, i), at_root(np.zeros(5, dtype)), MPI.MAX, ROOT),
    "Reduce in place": lambda dtype, i: (
        ((MPI.IN_PLACE, filled(5, dtype, i)) if RANK == ROOT else (filled(5, dtype, i), None)) + (MPI.SUM, ROOT)
    ),
    "Scan": lambda dtype, i: (filled(5, dtype, i), np.zeros(5, dtype)),
    "Exscan": lambda dtype, i: (filled(5, dtype, i), np.zeros(5, dtype)),
    "Reduce_scatter_block": lambda dtype, i: (filled(4 * SIZE, dtype, i), np.zeros(4, dtype)),
    "Reduce_scatter": lambda dtype, i: (filled(sum(COUNTS), dtype, i), np.zeros(COUNTS[RANK], dtype), COUNTS),
    "Bcast": lambda dtype, i: (filled(6, dtype, i), ROOT),
    "Scatter": lambda dtype, i: (at_root(filled(3 * SIZE, dtype, i)), np.zeros(3, dtype), ROOT),
    "Scatter in place": lambda dtype, i: (
        at_root(filled(3 * SIZE, dtype, i)),
        MPI.IN_PLACE if RANK == ROOT else np.zeros(3, dtype),
        ROOT,
    ),
    "Gather": lambda dtype, i: (filled(3, dtype, i), at_root(np.zeros(3 * SIZE, dtype)), ROOT),
    "Gather in place": lambda dtype, i: (
        MPI.IN_PLACE if RANK == ROOT else filled(3, dtype, i),
        at_root(filled(3 * SIZE, dtype, i)),
        ROOT,
    ),
    "Allgather": lambda dtype, i: (filled(3, dtype, i), np.zeros(3 * SIZE, dtype)),
    "Allgather in place": lambda dtype, i: (MPI.IN_PLACE, filled(3 * SIZE, dtype, i)),
    "Alltoall": lambda dtype, i: (filled(2 * SIZE, dtype, i), np.zeros(2 * SIZE, dtype)),
    "Alltoall in place": lambda dtype, i: (MPI.IN_PLACE, filled(2 * SIZE, dtype, i)),
    "Scatterv": lambda dtype, i: (
        at_root(filled(sum(COUNTS), dtype, i)) if RANK != ROOT else [filled(sum(COUNTS), dtype, i), COUNTS],
        np.zeros(COUNTS[RANK], dtype),
        ROOT,
    ),
    "Gatherv": lambda dtype, i: (
        filled(COUNTS[RANK], dtype, i),
        [np.zeros(sum(COUNTS), dtype), COUNTS] if RANK == ROOT else None,
        ROOT,
    ),
    "Allgatherv": lambda dtype, i: (filled(COUNTS[RANK], dtype, i), [np.zeros(sum(COUNTS), dtype), COUNTS]),
    "Allgatherv with gaps": lambda dtype, i: (
        filled(COUNTS[RANK], dtype, i),
        [np.zeros(5 * SIZE, dtype), (COUNTS, [5 * (SIZE - 1 - rank) for rank in range(SIZE)])],
    ),
    "Alltoallv": lambda dtype, i: (
        [filled(sum(COUNTS), dtype, i), COUNTS],
        [np.zeros(COUNTS[RANK] * SIZE, dtype), [COUNTS[RANK]] * SIZE],
    ),
    "Neighbor_allgather": lambda dtype, i: (filled(3, dtype, i), np.zeros(6, dtype)),
    "Neighbor_alltoall": lambda dtype, i: (filled(6, dtype, i), np.zeros(6, dtype)),
    "Neighbor_alltoallv": lambda dtype, i: ([filled(6, dtype, i), [4, 2]], [np.zeros(6, dtype), [2, 4]]),
    "Barrier": lambda dtype, i: (),
}


def arrays(arguments):
    lists = [argument if isinstance(argument, list) else [argument] for argument in arguments]
    return [each for given in lists for each in given if isinstance(each, np.ndarray)]


@pytest.mark.parametrize("typed", [False, True], ids=["arrays", "typed"])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("call", CALLS)
def test_repeated_calls_give_the_results_of_mpi(comms, call, dtype, typed):
    method = call.split()[0]
    for turn in range(4):
        ours, theirs = ([*CALLS[call](dtype, turn)] for _ in comms)
        if typed:
            for given in (ours, theirs):
                given[:] = [
                    [each, MPI.INT if dtype == "i4" else MPI.DOUBLE] if isinstance(each, np.ndarray) else each
                    for each in given
                ]
        getattr(comms[0], method)(*ours, algorithm="native")
        getattr(comms[1], method)(*theirs)
        for result, expected in zip(arrays(ours), arrays(theirs), strict=True):
            if method == "Exscan" and RANK == 0:
                continue
            assert np.array_equal(result, expected)


def test_functions(comms):
    for turn in range(4):
        given = np.arange(4.0) + turn + RANK
        total = np.arange(4.0) * SIZE + turn * SIZE + sum(range(SIZE))
        assert np.array_equal(pycoll.allreduce(given, comm=comms[0], algorithm="native"), total)
        gathered = pycoll.allgather(given, comm=comms[0], algorithm="native")
        assert np.array_equal(gathered, [np.arange(4.0) + turn + rank for rank in range(SIZE)])
        found = pycoll.bcast(given, ROOT, comm=comms[0], algorithm="native")
        assert np.array_equal(found, np.arange(4.0) + turn + ROOT)


def test_an_operation_of_the_program(comms):
    op = MPI.Op.Create(
        lambda left, right, _: np.maximum(
            *(np.frombuffer(x, "i4") for x in (left, right)), out=np.frombuffer(right, "i4")
        ),
        commute=True,
    )
    for turn in range(3):
        result = np.zeros(4, "i4")
        comms[0].Allreduce(np.full(4, RANK + turn, "i4"), result, op, algorithm="native")
        assert result.tolist() == [SIZE - 1 + turn] * 4
    op.Free()


@pytest.mark.skipif(SIZE != 2, reason="needs 2 ranks, so that nobody waits for the one with the error")
def test_an_error_of_mpi_is_raised():
    comm = pycoll.Comm(WORLD.Dup())
    short, long = np.zeros(4), np.zeros(8)
    for _ in range(2):
        comm.Bcast(short, algorithm="native")
        comm.Bcast(long, algorithm="native")
    if RANK == 0:
        comm.Bcast(long, algorithm="native")
    else:
        with pytest.raises(MPI.Exception) as raised:
            comm.Bcast(short, algorithm="native")
        assert raised.value.Get_error_class() == MPI.ERR_TRUNCATE
