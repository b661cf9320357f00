"""The reference executor computes the same bits as the other executors, for every algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.schedule.registry import PRIMITIVES, algorithms_of

from ..native import RANK, SIZE, WORLD, inputs

pytestmark = pytest.mark.mpi
EVEN = [name for name, primitive in PRIMITIVES.items() if not primitive.varies and name != "barrier"]
CASES = [(primitive, algorithm) for primitive in EVEN for algorithm in algorithms_of(primitive)]
COUNTS = [1 + rank % 3 for rank in range(SIZE)]


def arguments(primitive, send, root):
    if primitive == "bcast":
        return {"buf": send.copy(), "root": root}
    given = {"sendbuf": send}
    if PRIMITIVES[primitive].rooted:
        given["root"] = root
    if primitive == "scatter" and root != RANK:
        given |= {"sendbuf": None, "recvbuf": np.empty(send.size // SIZE, send.dtype)}
    return given


def both(monkeypatch, run):
    """The results of a call with both executors."""
    expected = run()
    monkeypatch.setattr(settings, "EXECUTOR", "reference")
    return expected, run()


@pytest.mark.parametrize(("primitive", "algorithm"), CASES)
def test_blocking_nonblocking_and_persistent_calls_give_the_same_bits(primitive, algorithm, monkeypatch):
    root, send = SIZE - 1, inputs(primitive, 7, "float32")

    def run():
        given = arguments(primitive, send, root) | {"algorithm": algorithm}
        started = getattr(pycoll, f"i{primitive}")(**given).wait()
        fixed = getattr(pycoll, f"{primitive}_init")(**given)
        for _ in range(2):
            fixed.Start()
            fixed.Wait()
        repeated = fixed.wait()
        fixed.Free()
        return [getattr(pycoll, primitive)(**given), started, repeated]

    pycoll.attach()
    expected, found = both(monkeypatch, run)
    for one, other in zip(expected, found):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("algorithm", algorithms_of("allgatherv"))
def test_allgatherv(algorithm, monkeypatch):
    send = np.full(COUNTS[RANK], RANK, "i4")
    expected, found = both(
        monkeypatch, lambda: pycoll.allgatherv(send, [np.empty(sum(COUNTS), "i4"), COUNTS], algorithm=algorithm)
    )
    np.testing.assert_array_equal(expected, found, strict=True)


@pytest.mark.parametrize("algorithm", algorithms_of("alltoallv"))
def test_alltoallv(algorithm, monkeypatch):
    send = np.repeat(np.arange(SIZE) + 10 * RANK, COUNTS)
    mine = [COUNTS[RANK]] * SIZE
    expected, found = both(
        monkeypatch,
        lambda: pycoll.alltoallv([send, COUNTS], [np.empty(sum(mine), send.dtype), mine], algorithm=algorithm),
    )
    np.testing.assert_array_equal(expected, found, strict=True)


@pytest.mark.parametrize("op", ["avg", "prod", "maxloc"])
def test_operations(op, monkeypatch):
    dtype = np.dtype([("value", "f8"), ("index", "i4")], align=True) if op == "maxloc" else np.dtype("c16")
    send = inputs("allreduce", 5, "complex128")
    if op == "maxloc":
        send = np.array([(value, RANK) for value in send.real], dtype)
    expected, found = both(monkeypatch, lambda: pycoll.allreduce(send, op=op, algorithm="ring"))
    np.testing.assert_array_equal(expected, found, strict=True)


def test_in_place_and_registered_memory(monkeypatch):
    buffer = pycoll.empty(1 << 16, "f8")

    def run():
        buffer[:] = RANK + 1
        pycoll.allreduce(MPI.IN_PLACE, buffer, algorithm="rabenseifner")
        return buffer.copy()

    expected, found = both(monkeypatch, run)
    np.testing.assert_array_equal(expected, found)


def test_user_defined_operation_keeps_rank_order(monkeypatch):
    def concatenate(left, right, datatype):
        target, source = np.frombuffer(right, "i8"), np.frombuffer(left, "i8")
        target[:] = 10 * source + target

    op = MPI.Op.Create(concatenate, commute=False)
    expected, found = both(
        monkeypatch, lambda: pycoll.allreduce(np.array([RANK + 1]), op=op, algorithm="recursive_doubling")
    )
    assert expected == found
    op.Free()


def test_a_timeout_names_the_missing_rank(monkeypatch):
    comm = pycoll.Comm(WORLD.Dup())
    pycoll.barrier(comm=comm)
    monkeypatch.setattr(settings, "EXECUTOR", "reference")
    monkeypatch.setattr(settings, "TIMEOUT", 0.2)
    if RANK == 0 and SIZE > 1:
        with pytest.raises(pycoll.CollectiveTimeout, match=f"for rank {SIZE - 1} to send a message to it"):
            pycoll.allreduce(np.ones(3), comm=comm, algorithm="ring")
    WORLD.Barrier()
