"""Persistent collectives: repeated starts with new values, use beside other calls, and release of memory."""

import gc
import random
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.runtime import progress
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.native import RANK, SIZE, WORLD

from .nonblocking import LARGE, LEFT, PAIRS, RIGHT, begin, case, check, concatenate, finish_any

pytestmark = pytest.mark.mpi
TOTAL = SIZE * (SIZE + 1) // 2  # sum of 1, 2, ... over the ranks


def prepare(primitive, one, algorithm=None):
    return getattr(pycoll, f"{primitive}_init")(**one.given, algorithm=algorithm)


def refill(one, primitive, *arguments):
    """Copy the values of another case into the send buffer; return the case with the new expected output."""
    new = case(primitive, *arguments)
    if one.send is not None:
        one.send[...] = new.send
    return one._replace(expected=new.expected)


def wait(request):
    return request.wait()


def wait_upper(request):
    assert request.Wait() is True
    return request.test()[1]


def poll(request):
    while not (outcome := request.test())[0]:
        time.sleep(0)
    return outcome[1]


def wait_all(request):
    return pycoll.waitall([request])[0]


FINISHES = [wait, wait_upper, poll, wait_all]


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_algorithm(primitive, algorithm):
    for count in (0, 1, 7, 300):
        arguments = (count, count % SIZE)
        one = case(primitive, WORLD, 0, *arguments)
        with prepare(primitive, one, algorithm) as request:
            for seed, finish in enumerate(FINISHES):
                one = refill(one, primitive, WORLD, seed, *arguments)
                request.Start()
                check(finish(request), one)


@pytest.mark.parametrize("primitive", ["bcast", "allreduce", "alltoall", "reduce_scatter", "scatterv"])
def test_long_messages(primitive):
    count = LARGE // (SIZE if PRIMITIVES[primitive].takes_all else 1)
    for algorithm in [*algorithms_of(primitive), "native"]:
        one = case(primitive, WORLD, 0, count)
        with prepare(primitive, one, algorithm) as request:
            for seed in range(2):
                one = refill(one, primitive, WORLD, seed, count)
                request.Start()
                check(request.wait(), one)


@pytest.mark.parametrize("company", [False, True], ids=["alone", "with others"])
@pytest.mark.parametrize("finish", [*FINISHES, "waitall", "waitany"])
def test_several_started_together(company, finish):
    """Several requests are started together, and complete in a different order on each rank."""
    kinds = random.Random(1).sample(PAIRS, 20)
    cases = [case(primitive, count=number) for number, (primitive, _) in enumerate(kinds)]
    requests = [prepare(primitive, one, algorithm) for (primitive, algorithm), one in zip(kinds, cases)]
    mixed, came = random.Random(RANK), np.empty(1, int)
    for seed in range(4):
        cases = [
            refill(one, primitive, WORLD, seed, number)
            for number, (one, (primitive, _)) in enumerate(zip(cases, kinds))
        ]
        if company:
            message = WORLD.Irecv(came, MPI.ANY_SOURCE, MPI.ANY_TAG)
            others = [(begin(primitive, one), one) for primitive in PRIMITIVES for one in [case(primitive, seed=seed)]]
        for request in requests:
            request.Start()
        if company:
            assert pycoll.allreduce(np.array([RANK]), op="max")[0] == SIZE - 1
            WORLD.Send(np.array([RANK]), RIGHT, seed)
            pycoll.waitall([message])
            assert came[0] == LEFT
        order = mixed.sample(range(20), 20)
        if finish == "waitall":
            results = dict(zip(order, pycoll.waitall([requests[i] for i in order])))
        elif finish == "waitany":
            results = finish_any(requests, order)
        else:
            results = {i: finish(requests[i]) for i in order}
        for i, result in results.items():
            check(result, cases[i])
        if company:
            for request, one in mixed.sample(others, len(others)):
                check(request.wait(), one)
    for request in requests:
        request.Free()


def test_the_state_of_a_request():
    values, result = np.full(3, RANK + 1), np.zeros(3, int)
    request = pycoll.allreduce_init(values, result)
    assert request.Test() and request.Wait() and not result.any()  # inactive, as in MPI
    for _ in range(3):
        request.Start()
        with pytest.raises(RuntimeError, match=r"Start: allreduce by \w+ on rank \d of \d is still active"):
            request.Start()
        with pytest.raises(RuntimeError, match=r"Free: .* is still active"):
            request.Free()
        assert request.wait() is result and (result == TOTAL).all()
        result[...] = 0
    request.Free()
    request.Free()
    with pytest.raises(RuntimeError, match="is freed"):
        request.Start()


def test_start_while_complete_but_not_waited_for():
    """A start is an error until the caller has waited, even if another call has completed the collective."""
    request = pycoll.allreduce_init(np.ones(3), np.empty(3))
    request.Start()
    pycoll.barrier()
    while progress.tasks:
        progress.progress()
    with pytest.raises(RuntimeError, match="still active"):
        request.Start()
    request.Wait()
    request.Free()


def test_the_end_of_a_with_block_waits_and_frees():
    result = np.empty(LARGE)
    with pycoll.allreduce_init(np.ones(LARGE), result) as request:
        request.Start()
    assert (result == SIZE).all()
    with pytest.raises(RuntimeError, match="is freed"):
        request.Start()
    with pytest.raises(KeyError, match="of the caller"), pycoll.barrier_init() as request:
        raise KeyError("of the caller")
    with pytest.raises(RuntimeError, match="is freed"):
        request.Start()


def test_send_buffers_with_gaps_are_packed_at_each_start():
    grid = np.zeros((4, 6))
    fused = [np.zeros(n) for n in (3, 1, 20)]
    with (
        pycoll.allreduce_init(grid[:, ::2]) as gaps,
        pycoll.reduce_init(grid.T, came := np.empty((6, 4))) as transposed,
        pycoll.allreduce_init(fused) as lists,
    ):
        for turn in range(1, 4):
            grid[...] = np.arange(24).reshape(4, 6) * turn * (RANK + 1)
            for n, array in enumerate(fused):
                array[...] = turn * (RANK + 1) + n
            for request in (gaps, transposed, lists):
                request.Start()
            for request in (lists, gaps, transposed)[:: 1 if RANK % 2 else -1]:
                request.Wait()
            np.testing.assert_array_equal(gaps.wait().reshape(4, 3), np.arange(24).reshape(4, 6)[:, ::2] * turn * TOTAL)
            if RANK == 0:
                np.testing.assert_array_equal(came, np.arange(24).reshape(4, 6).T * turn * TOTAL)
            assert [set(array) for array in lists.wait()] == [{turn * TOTAL + n * SIZE} for n in range(3)]


@pytest.mark.parametrize("primitive", ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"])
def test_operations_of_the_users(primitive):
    op = MPI.Op.Create(concatenate, commute=False)
    wide = 5 * (SIZE if primitive == "reduce_scatter" else 1)
    send = np.empty(wide, int)
    last = {"scan": RANK + 1, "exscan": RANK}.get(primitive, SIZE)
    with getattr(pycoll, f"{primitive}_init")(send, np.empty(5, int), op) as request:
        for turn in (0, 1):
            send[...] = RANK + turn
            request.Start()
            result = request.wait()
            if last and result is not None:
                digits = int("".join(str(rank + turn) for rank in range(last)))
                np.testing.assert_array_equal(result, np.full(5, digits))
    op.Free()


@pytest.mark.parametrize("algorithm", algorithms_of("allreduce"))
@pytest.mark.parametrize("others", [0, 2])
def test_floating_point_errors_come_out_of_their_own_wait(algorithm, others):
    send, recv = np.empty(9), np.empty(9)
    beside = [pycoll.allreduce_init(np.ones(9), algorithm=algorithm) for _ in range(others)]
    with np.errstate(all="raise"), pycoll.allreduce_init(send, recv, algorithm=algorithm) as request:
        for value in (1.0, 1e308, 2.0, 1e308, 3.0):
            send[...] = value
            raised = False
            for one in (*beside, request):
                one.Start()
            for one in beside:
                assert (one.wait() == SIZE).all()
            try:
                request.Wait()
            except FloatingPointError:
                raised = True
            assert any(WORLD.allgather(raised)) == (value > 3 and SIZE > 1)
            np.testing.assert_array_equal(recv, np.full(9, np.inf if value > 3 and SIZE > 1 else value * SIZE))
    for one in beside:
        one.Free()


def test_starts_crosswise_with_waits_in_messages():
    """Rank 0 starts a collective, and waits for a message that the others send after completing it."""
    result, token = np.empty(LARGE), np.empty(1)
    with pycoll.allreduce_init(np.ones(LARGE), result, algorithm="ring") as request:
        for _ in range(2):
            request.Start()
            if RANK == 0:
                for peer in range(1, SIZE):
                    pycoll.recv(token, peer)
            request.Wait()
            assert (result == SIZE).all()
            if RANK:
                pycoll.send(token, 0)


def test_wrong_arguments():
    """An error on one rank sends nothing: this rank can call again with the right arguments."""
    if RANK == 0:
        with pytest.raises(ValueError, match="recvbuf has 4 elements"):
            pycoll.allreduce_init(np.ones(3), np.ones(4))
        with pytest.raises(TypeError, match="unexpected keyword argument 'info'"):
            pycoll.barrier_init(info=None)
    with prepare("allreduce", one := case("allreduce")) as request:
        request.Start()
        check(request.wait(), one)


@pytest.mark.parametrize("function", ["Startall", "Waitall", "Testany"])
def test_mpi_refuses_pycolls_requests(function):
    with pycoll.barrier_init() as request, pytest.raises(TypeError):
        getattr(MPI.Prequest, function)([request])


def test_makes_the_private_duplicate_itself():
    comm = WORLD.Dup()
    with pycoll.allreduce_init(np.ones(2), comm=comm) as request:
        request.Start()
        assert (request.wait() == SIZE).all()
    comm.Free()


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4  # KiB


@pytest.mark.parametrize("primitive, algorithm", [("allreduce", "tree"), ("scatterv", "tree"), ("bcast", "naive")])
def test_what_is_freed_leaves_nothing(primitive, algorithm):
    one = case(primitive, count=1)

    def cycles(times):
        for _ in range(times):
            with prepare(primitive, one, algorithm) as request:
                request.Start()
        return memory()

    ends = [cycles(100), *(cycles(500 if SIZE <= 2 else 70) for _ in range(3))]
    assert np.diff(ends).min() < 150  # pools of other libraries may grow once


def test_ten_thousand_made_and_freed():
    values, result = np.ones(4), np.empty(4)
    for _ in range(10_000 if SIZE <= 2 else 500):
        pycoll.allreduce_init(values, result).Free()


def test_dropped_while_active():
    received = np.zeros(LARGE)
    pycoll.allreduce_init(np.ones(LARGE), received).Start()
    gc.collect()
    while progress.tasks:
        progress.progress()
    assert (received == SIZE).all()
    pycoll.allreduce_init(received, np.empty(LARGE)).Free()


def test_there_is_no_second_method_that_starts_it():
    """Only `Start` prepares the parts of the collective, so the method of the task must not be public as `start`."""
    with pycoll.barrier_init() as request:
        assert not hasattr(request, "start")
