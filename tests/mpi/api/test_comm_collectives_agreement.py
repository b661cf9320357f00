"""Ranks that see a call differently must agree on passing it to MPI or not."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.api.test_comm_collectives_short import comm  # noqa: F401 (a fixture)
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi


@pytest.fixture(params=[1, 30_000])
def count(request):
    return request.param


def test_allgatherv_by_the_mean_length_of_a_block(comm, count):  # noqa: F811
    for wanted in (1, count, count):
        table = np.zeros(SIZE * wanted)
        given = np.full(wanted, RANK + 1.0)
        in_flight = pycoll.iallreduce(np.ones(3), comm=comm)
        if RANK:
            in_flight.Wait()
        comm.Allgatherv(given if RANK else memoryview(given), [table, [wanted] * SIZE])
        in_flight.Wait()
        assert (table.reshape(SIZE, wanted)[:, 0] == np.arange(1, SIZE + 1)).all()


def test_operations_that_may_be_freed(comm):  # noqa: F811
    for _ in range(3):
        copy, result = MPI.Op(MPI.SUM), np.zeros(2)
        comm.Allreduce(np.ones(2), result, copy)
        assert result.tolist() == [SIZE, SIZE]
        own = MPI.Op.Create(lambda a, b, _: np.frombuffer(b)[...].__iadd__(np.frombuffer(a)) is None, commute=True)
        comm.Allreduce(np.ones(2), result, own)
        own.Free()
        assert result.tolist() == [SIZE, SIZE]


def test_an_array_that_is_not_aligned(comm):  # noqa: F811
    area = np.zeros(41, np.uint8)
    odd = np.ndarray(10, "i4", area, 1)
    for number in range(3):
        odd[:] = number + RANK
        comm.Bcast(odd if RANK == 0 else np.empty(10, "i4"), 0)
        comm.Allreduce(odd, np.empty(10, "i4"))
        result = np.ndarray(10, "i4", np.zeros(41, np.uint8), 1)
        comm.Allreduce(np.full(10, number, "i4"), result if RANK == 0 else np.empty(10, "i4"))
        assert RANK or (result == number * SIZE).all()


def test_background_progress_has_tasks(comm):  # noqa: F811
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("no MPI_THREAD_MULTIPLE")
    x, y = np.ones(4), np.zeros(4)
    comm.Allreduce(x, y)
    with pycoll.progress_thread():
        request = comm.Iallreduce(x, y)
        assert isinstance(request, pycoll.Request)
        request.Wait()
    assert (y == SIZE).all()
