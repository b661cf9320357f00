"""Calls that agree on all ranks or not, with PYCOLL_CHECK set or not."""

import sys

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base.numbers import ranks_named
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.jobs import calls
from tests.jobs.calls import call, form, mine, raises, rank, size, world


def check_all_is_well():
    assert (call("allreduce", np.full(3, rank)) == sum(range(size))).all()


def mismatch(texts, *args, **kwargs):
    message = raises(pycoll.MismatchError, texts, call, *args, **kwargs)
    assert len(set(world.allgather(message))) == 1
    check_all_is_well()


def mismatches():
    for _ in range(2):
        mismatches_of_one_argument()
        mismatches_of_counts()


def mismatches_of_one_argument():
    a = np.ones(6)
    on = f"({ranks_named([rank for rank in range(size) if rank != 1])})"
    mismatch([f"primitive differs: 'bcast' {on}; 'scan' (rank 1)"], "scan" if mine else "bcast", a)
    mismatch([f"count differs: 6 {on}; 5 (rank 1)"], "allreduce", a[:5] if mine else a)
    mismatch([f"bytes differs: 48 {on}; 40 (rank 1)"], "bcast", (a[:5] if mine else a).copy())
    mismatch(["dtype differs: 'float64'", "'float32' (rank 1)"], "allreduce", a.astype("f4") if mine else a)
    mismatch(["op differs: ", "SUM", "MAX", "rank 1"], "allreduce", a, op=MPI.MAX if mine else "sum")
    mismatch([f"root differs: 0 {on}; 1 (rank 1)"], "reduce", a, np.empty(6), root=int(mine))
    mismatch([f"algorithm differs: 'ring' {on}; 'tree' (rank 1)"], "barrier", algorithm="tree" if mine else "ring")


def mismatches_of_counts():
    there = [3 if mine and r == 0 else 2 for r in range(size)]
    table = np.empty(sum(there))
    mismatch(["recvcounts differs: [16, ", "[24, ", "(rank 1)"], "allgatherv", np.ones(2), [table, there])
    counts = [5 if r == 1 else 2 for r in range(size)]
    table = [np.empty(sum(counts)), counts] if rank == 0 else None
    mismatch(["rank 0 sends 40 bytes to rank 1, which expects 16"], "scatterv", table, np.empty(2))
    mismatch(["rank 1 sends 16 bytes to rank 0, which expects 40"], "gatherv", np.empty(2), table)
    one = [1] * size
    wrong = [1, 4] + [1] * (size - 2) if rank == 0 else one
    texts = ["rank 0 sends 32 bytes to rank 1, which expects 8"]
    mismatch(texts, "alltoallv", [np.empty(sum(wrong)), wrong], [None, one])
    for others in one, None:
        texts, given = ["recvcounts differs: [8, ", "rank 1"], [0, 2, *one[2:]] if mine else others
        mismatch(texts, "reduce_scatter", np.empty(size), recvcounts=given)
    call("reduce_scatter", np.empty(size), recvcounts=one if mine else None)


def wrong_arguments():
    for _ in range(2):
        error = ValueError if mine else pycoll.MismatchError
        why = "recvbuf has 4 elements"
        text = why if mine else f"on rank 1 the call of allreduce has wrong arguments ({why}"
        raises(error, [text], call, "allreduce", np.ones(3), np.ones(4 if mine else 3))
        text = "bad" if mine else "on rank 1 the call of reduce has wrong arguments (op='bad' is not one of"
        raises(error, [text], call, "reduce", np.ones(3), op="bad" if mine else "sum")
        check_all_is_well()


def unreadable():
    """Without CuPy, only MPI may be able to read the buffers of rank 1."""
    sys.modules["cupy"] = None
    comm = pycoll.Comm(world)
    start = getattr(comm, {"blocking": "Allreduce", "nonblocking": "Iallreduce", "persistent": "Allreduce_init"}[form])
    a, b = np.ones(6), np.empty(6)

    def started(*buffers):
        if (request := start(*buffers)) and form == "persistent":
            request.Start()
        if request:
            request.Wait()

    for _ in range(2):
        given = (OnGPU(a), OnGPU(b)) if mine else (a, b)
        raises(pycoll.MismatchError, ["only MPI may be able to read"], started, *given)
        b[...] = 0
        started(OnGPU(a) if mine else a, OnGPU(b))
        assert (b == size).all()


class OnGPU:
    def __init__(self, array):
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


def right_calls():
    from tests.mpi.api.nonblocking import case, check

    requests = []
    for number, (primitive, algorithm) in enumerate((p, a) for p in PRIMITIVES for a in algorithms_of(p)):
        for _ in range(2):
            one = case(primitive, seed=number, root=number % size)
            check(call(primitive, **one.given, algorithm=algorithm), one)
        one = case(primitive, seed=number, root=number % size)
        requests.append((getattr(pycoll, "i" + primitive)(**one.given, algorithm=algorithm), one))
    for request, one in requests[:: 1 if rank else -1]:
        check(request.wait(), one)
    right_calls_in_place()
    call("allreduce", [np.ones(2), np.ones(3)])


def right_calls_in_place():
    counts = [3 * r + 1 for r in range(size)]
    start = sum(counts[:rank])
    everything = np.zeros(sum(counts))
    everything[start : start + counts[rank]] = rank
    call("allgatherv", MPI.IN_PLACE, [everything, counts])
    assert (everything == np.repeat(range(size), counts)).all()
    table = [everything, counts] if rank == 0 else None
    call("gatherv", everything[: counts[rank]] if rank else MPI.IN_PLACE, table)
    call("scatterv", table, np.empty(counts[rank]) if rank else MPI.IN_PLACE)
    call("alltoallv", MPI.IN_PLACE, [np.zeros(size), [1] * size])


def wrong_while_others_wait():
    first = pycoll.iallreduce(np.ones(1 << 19), algorithm="ring")
    if not mine:
        first.Wait()
    raises((ValueError, pycoll.MismatchError), [], call, "allreduce", np.ones(3), np.ones(4 if mine else 3))
    assert (first.wait() == size).all()


def wrong_alone():
    if not mine:
        raises((ValueError, pycoll.CollectiveTimeout), [], call, "allreduce", np.ones(3), np.ones(4))
    world.Barrier()


def truncated():
    """One round, in which only rank 1 receives a message that is too long."""
    try:
        call("bcast", np.ones(2 if mine else 3), algorithm="naive")
    except MPI.Exception as problem:
        assert mine and problem.Get_error_class() == MPI.ERR_TRUNCATE
        assert "PYCOLL_CHECK=1" in str(problem), problem
        texts = ["cannot be used any more", "PYCOLL_CHECK=1"]
        raises(pycoll.CollectiveInterrupted, texts, call, "bcast", np.ones(3))
    else:
        assert not mine
    world.Barrier()


def logged():
    comm = pycoll.Comm(world.Dup())
    comm.algorithm["Scan"] = "ring"
    for _ in range(3):
        pycoll.allreduce(np.ones(3))
        pycoll.allreduce(np.ones(3), algorithm="tree")
        pycoll.iallreduce(np.ones(3), algorithm="tree").Wait()
        pycoll.bcast(np.ones(2))
        comm.Scan(np.ones(3), np.empty(3))
        pycoll.allreduce(np.ones(5), comm=comm)
        pycoll.barrier()


calls.run(globals())
