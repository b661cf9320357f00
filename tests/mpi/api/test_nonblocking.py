"""Nonblocking collectives: results, any order of completion, and use beside other calls."""

import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

from .nonblocking import (
    LARGE,
    LEFT,
    PAIRS,
    RIGHT,
    begin,
    case,
    check,
    finish_all,
    finish_any,
    finish_by_testing_all,
    wait_by_testing,
)

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def comms():
    """Yield the world, a duplicate, the world in reverse order, and a part of it, each with its private duplicate."""
    made = [WORLD.Dup(), WORLD.Split(0, -RANK), WORLD.Split(RANK % 2, RANK)]
    for comm in made:
        pycoll.attach(comm)
    yield [WORLD, *made]
    for comm in made:
        comm.Free()


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_algorithm(primitive, algorithm):
    cases = [case(primitive, seed=n, count=n, root=n % SIZE) for n in (0, 1, 7, 300)]
    requests = [begin(primitive, one, algorithm) for one in cases]
    for finish, request, one in zip([pycoll.Request.wait, wait_by_testing] * 2, requests[::-1], cases[::-1]):
        check(finish(request), one)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_results_are_the_blocking_forms(primitive):
    one = case(primitive, root=SIZE - 1)
    if (PRIMITIVES[primitive].rooted and RANK != SIZE - 1) or PRIMITIVES[primitive].varies:
        given = one.given
    else:
        given = {name: value for name, value in one.given.items() if name != "recvbuf"}
    theirs = getattr(pycoll, primitive)(**given)
    ours = getattr(pycoll, f"i{primitive}")(**given).wait()
    assert type(ours) is type(theirs)
    if theirs is not None:
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def finish_each(requests, order):
    results = {}
    for i in order:
        results[i] = requests[i].wait() if i % 2 else wait_by_testing(requests[i])
    return results


@pytest.mark.parametrize("finish", [finish_each, finish_all, finish_any, finish_by_testing_all])
@pytest.mark.parametrize("company", [False, True], ids=["alone", "with others"])
def test_many_in_flight(comms, finish, company):
    """Many calls are in flight on several communicators, and complete in a different order on each rank."""
    alike = random.Random(company)
    order = list(range(40))
    random.Random(RANK).shuffle(order)
    cases, requests = [], []
    token = np.empty(1, int)
    tokens = WORLD.Irecv(token, MPI.ANY_SOURCE, MPI.ANY_TAG)
    for number in range(40):
        primitive, algorithm = alike.choice(PAIRS)
        comm = alike.choice(comms)
        cases.append(case(primitive, comm, number, alike.choice([1, 5, 3000]), alike.randrange(8) % comm.size))
        requests.append(begin(primitive, cases[-1], algorithm))
        if company and number % 8 == 3:
            assert pycoll.allreduce(np.array([RANK]), op="max", comm=comm)[0] == comm.allreduce(RANK, MPI.MAX)
            WORLD.Barrier()
    WORLD.Send(np.array([RANK]), RIGHT, 5)
    tokens.Wait()
    assert token[0] == LEFT
    for number, result in finish(requests, order).items():
        check(result, cases[number])


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("primitive", ["allreduce", "alltoall", "scan", "barrier", "alltoallv"])
def test_waits_crosswise(primitive, count):
    count = count // SIZE if PRIMITIVES[primitive].takes_all else count
    cases = [case(primitive, seed=seed, count=count) for seed in range(2)]
    requests = [begin(primitive, one) for one in cases]
    for i in (0, 1) if RANK == 0 else (1, 0):
        check(requests[i].wait(), cases[i])


@pytest.mark.parametrize("primitive", ["bcast", "reduce", "allgather", "allreduce", "reduce_scatter", "exscan"])
def test_long_messages_of_all_algorithms_at_once(primitive):
    count = LARGE // (SIZE if PRIMITIVES[primitive].takes_all or PRIMITIVES[primitive].gives_all else 1) // 2
    one = case(primitive, count=count)
    copies = [case(primitive, count=count) for _ in algorithms_of(primitive)]
    requests = [begin(primitive, copy, name) for copy, name in zip(copies, algorithms_of(primitive))]
    for result in finish_each(requests, list(range(len(requests)))[:: 1 if RANK % 2 else -1]).values():
        check(result, one)


# Rank 0 starts a collective and then waits in a message, which matches only after the others complete the collective.
LONG_MESSAGE = np.zeros(LARGE)


def receive(peers, comm):
    for _ in peers:
        pycoll.recv(np.empty(1, int), comm=comm)


def receive_while_sending(peers, comm):
    for peer in peers:
        pycoll.sendrecv(np.zeros(1, int), peer, recvbuf=np.empty(1, int), source=peer, comm=comm)


def send_long(peers, comm):
    for peer in peers:
        pycoll.send(LONG_MESSAGE, peer, comm=comm)


def answer(first, comm):
    if first is receive_while_sending:
        pycoll.sendrecv(np.zeros(1, int), 0, recvbuf=np.empty(1, int), source=0, comm=comm)
    elif first is receive:
        pycoll.send(np.zeros(1, int), 0, comm=comm)
    else:
        pycoll.recv(np.empty_like(LONG_MESSAGE), 0, comm=comm)


@pytest.mark.parametrize("first", [receive, receive_while_sending, send_long])
@pytest.mark.parametrize("algorithm", ["naive", "tree", "ring", "double_tree"])
def test_the_callers_own_messages_let_flights_go_on(first, algorithm):
    one = case("allreduce", count=LARGE)
    request = begin("allreduce", one, algorithm)
    if RANK == 0:
        first(range(1, SIZE), WORLD)
        check(request.wait(), one)
    else:
        check(request.wait(), one)
        answer(first, WORLD)


def test_blocking_collectives_let_flights_go_on(comms):
    one = case("allreduce", count=LARGE)
    request = begin("allreduce", one, "ring")
    if RANK == 0:
        pycoll.barrier(comm=comms[1])
        check(request.wait(), one)
    else:
        check(request.wait(), one)
        pycoll.barrier(comm=comms[1])


def test_on_a_communicator_of_one():
    pycoll.attach(MPI.COMM_SELF)
    for primitive, algorithm in PAIRS:
        one = case(primitive, MPI.COMM_SELF)
        check(begin(primitive, one, algorithm).wait(), one)


def test_with_the_communicators_choice_of_algorithms():
    comm = pycoll.Comm(WORLD.Dup())
    comm.algorithm["allreduce"] = "ring"
    one = case("allreduce", comm)
    check(begin("allreduce", one).wait(), one)
    comm.Free()


# A programme is a list of starts, waits and other calls; each rank waits in a different order.
STEPS = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(PAIRS), st.integers(0, 3), st.integers(0, 400), st.integers(0, 7)),
    st.tuples(st.sampled_from(["wait", "test", "blocking", "native", "ring", "waitall"]), st.integers(0, 1000)),
)


@examples(100 if SIZE < 4 else 25)
@given(programme=st.lists(STEPS, max_size=30))
def test_drawn_programmes(together, comms, programme):
    together(partial(run_programme, comms), programme)


def run_programme(comms, programme):
    open_ones = []
    for number, (step, *drawn) in enumerate(programme):
        if step == "start":
            (primitive, algorithm), which, length, root = drawn
            comm = comms[which]
            one = case(primitive, comm, len(open_ones), length, root % comm.size)
            open_ones.append((begin(primitive, one, algorithm), one))
        elif step == "waitall":
            finish_programme(open_ones)
        elif step == "blocking":
            assert pycoll.allreduce(np.array([RANK]), op="max")[0] == SIZE - 1
        elif step == "native":
            pycoll.waitall([WORLD.Ibarrier()])  # WORLD.Barrier would not progress what others wait for
        elif step == "ring":
            came = pycoll.sendrecv(np.array([RANK]), RIGHT, number, source=LEFT, recvtag=MPI.ANY_TAG)
            assert came[0] == LEFT
        elif open_ones and step == "test":
            open_ones[(drawn[0] + RANK) % len(open_ones)][0].Test()
        elif open_ones:
            request, one = open_ones.pop((drawn[0] * (RANK + 1)) % len(open_ones))
            check(request.wait(), one)
    finish_programme(open_ones)


def finish_programme(open_ones):
    random.Random(RANK).shuffle(open_ones)
    for request, one in open_ones:
        check(request.wait(), one)
    open_ones.clear()
