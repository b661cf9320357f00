"""``algorithm="native"``: errors, and use beside other calls; its results are tested in api/test_collectives.py."""

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.selection import choices
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.dtype([("x", "f4"), ("i", "i8")])])
def test_dtypes_that_mpi_does_not_have_are_refused(dtype):
    send = np.zeros(4, dtype)
    with pytest.raises(ValueError, match=r"native.*MPI has no datatype"):
        pycoll.allreduce(send, op="minloc" if send.dtype.names else "max", algorithm="native")
    everything = pycoll.allgather(np.full(3, RANK).astype(dtype), algorithm="native")  # moving data needs only bytes
    assert everything.shape == (SIZE, 3) and everything.dtype == dtype


def test_pairs_and_operations_of_the_user():
    pairs = np.zeros(3, [("x", "f4"), ("i", "i4")])
    pairs["x"], pairs["i"] = (RANK + 1) % SIZE, RANK
    assert pycoll.allreduce(pairs, op="minloc", algorithm="native")["i"].tolist() == [SIZE - 1] * 3

    def left(a, b, datatype):
        np.frombuffer(b, "i8")[:] = np.frombuffer(a, "i8")

    op = MPI.Op.Create(left, commute=False)
    assert pycoll.allreduce(np.array([RANK + 5]), op=op, algorithm="native") == [5]
    op.Free()


def test_the_environment_and_the_communicator_may_ask_for_it(monkeypatch):
    choices.algorithm_from_environment.cache_clear()
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "native")
    try:
        with pycoll.traffic() as sent:
            assert pycoll.allreduce(np.ones(4))[0] == SIZE
        assert sent.messages == 0  # pycoll itself sends none
        assert "PYCOLL_ALLREDUCE" in pycoll.explain("allreduce", nbytes=32).reason
    finally:
        choices.algorithm_from_environment.cache_clear()
    comm = pycoll.Comm(WORLD.Dup())
    comm.algorithm["Bcast"] = "native"
    data = np.full(7, RANK)
    with pycoll.traffic() as sent:
        comm.Bcast(data, root=SIZE - 1)
    assert (data == SIZE - 1).all() and sent.messages == 0
    comm.Free()


def test_beside_collectives_in_flight():
    flying = [pycoll.iallreduce(np.full(10, i), algorithm=name) for i, name in enumerate(["ring", "native", "tree"])]
    assert pycoll.allreduce(np.ones(3), algorithm="native").tolist() == [SIZE] * 3
    assert [request.wait()[0] for request in reversed(flying)] == [2 * SIZE, SIZE, 0]


def test_with_checks_the_order_of_starting_is_kept(monkeypatch):
    monkeypatch.setattr(settings, "CHECK", True)
    flying = [pycoll.iallreduce(np.full(10, i), algorithm="native") for i in range(4)]
    assert [request.wait()[0] for request in flying] == [0, SIZE, 2 * SIZE, 3 * SIZE]


def test_with_a_timeout(monkeypatch):
    monkeypatch.setattr(settings, "TIMEOUT", 20.0)
    assert pycoll.allgather(np.array([RANK]), algorithm="native").ravel().tolist() == list(range(SIZE))
    if SIZE > 1:
        comm = WORLD.Dup()
        pycoll.attach(comm)
        monkeypatch.setattr(settings, "TIMEOUT", 0.2)
        if RANK == 0:
            with pytest.raises(pycoll.CollectiveTimeout, match="native collective has not completed"):
                pycoll.barrier(comm=comm, algorithm="native")
        WORLD.Barrier()
