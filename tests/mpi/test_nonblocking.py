"""Nonblocking collectives: results, any order of completion, company of all kinds, errors, and nothing left over."""

import gc
import random
import time
import weakref
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll import progress
from pycoll.schedule import PRIMITIVES, algorithms_of

from .native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi

PAIRS = [(primitive, algorithm) for primitive in PRIMITIVES for algorithm in [*algorithms_of(primitive), "native"]]
LARGE = 1 << 19  # elements: 4 MiB, above every eager limit
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


class Case(NamedTuple):
    """A call's arguments by name, its input and the output that is expected of it, both flat or None."""

    given: dict
    send: np.ndarray | None
    expected: np.ndarray | None


def case(primitive, comm=WORLD, seed=0, count=5, root=0):
    """Of numbers that every rank knows; v-variants have blocks of 0 to 3 times `count`."""
    kind, rank, size = PRIMITIVES[primitive], comm.rank, comm.size

    def block(source, to):
        length = (source + 2 * to) % 4 * count if kind.varies else count
        return np.random.default_rng([seed, source, to]).integers(0, 1000, length)

    def own(source):
        return block(source, source)

    ranks = range(size)
    at_root = not kind.rooted or rank == root
    send = expected = None
    if kind.takes_all:
        send = np.concatenate([block(rank, to) for to in ranks]) if at_root else None
    elif primitive != "barrier":
        send = own(rank)
    if primitive == "bcast":
        expected = own(root)
    elif primitive == "reduce_scatter":
        expected = sum(block(source, rank) for source in ranks)
    elif kind.reduces and at_root:
        contributors = list(kind.contributors(rank, size))
        expected = sum(map(own, contributors)) if contributors else None
    elif kind.rooted and kind.takes_all:
        expected = block(root, rank)
    elif kind.takes_all:
        expected = np.concatenate([block(source, rank) for source in ranks])
    elif kind.gives_all and at_root:
        expected = np.concatenate(list(map(own, ranks)))

    given = {"comm": comm} | ({"root": root} if kind.rooted else {})
    recv = None if expected is None else np.zeros_like(expected)
    if primitive == "bcast":
        given["buf"] = send = send.copy() if rank == root else recv
    elif primitive != "barrier":
        given |= {"sendbuf": send, "recvbuf": recv}
    if kind.varies:
        if kind.takes_all and at_root:
            given["sendbuf"] = _spec(primitive, send, [block(rank, to).size for to in ranks])
        if kind.gives_all and at_root:
            sources = [own(source) if not kind.takes_all else block(source, rank) for source in ranks]
            given["recvbuf"] = _spec(primitive, recv, [came.size for came in sources])
    return Case(given, send, expected)


def _spec(primitive, array, counts):
    if primitive != "alltoallw":
        return [array, counts]
    return [array, counts, [8 * sum(counts[:peer]) for peer in range(len(counts))], [MPI.INT64_T] * len(counts)]


def begin(primitive, one, algorithm=None):
    return getattr(pycoll, f"i{primitive}")(**one.given, algorithm=algorithm)


def check(result, one):
    if one.expected is not None:
        np.testing.assert_array_equal(result, one.expected)


def wait_by_testing(request):
    while not (outcome := request.test())[0]:
        time.sleep(0)
    return outcome[1]


@pytest.fixture(autouse=True)
def nothing_left():
    pycoll.attach(WORLD)
    yield
    assert progress.flights == []


@pytest.fixture(scope="module")
def comms():
    """The world, a duplicate, the world backwards, and a part of it, each with its private duplicate."""
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


def finish_all(requests, order):
    return dict(zip(order, pycoll.waitall([requests[i] for i in order])))


def finish_any(requests, order):
    results, left = {}, list(order)
    while left:
        at, result = pycoll.waitany([requests[i] for i in left])
        results[left.pop(at)] = result
    return results


def finish_by_testing_all(requests, order):
    while not (outcome := pycoll.testall([requests[i] for i in order]))[0]:
        time.sleep(0)
    return dict(zip(order, outcome[1]))


@pytest.mark.parametrize("finish", [finish_each, finish_all, finish_any, finish_by_testing_all])
@pytest.mark.parametrize("company", [False, True], ids=["alone", "with others"])
def test_many_in_flight(comms, finish, company):
    """On several communicators, and finished in another order on each rank."""
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


# Rank 0 starts a collective and then waits in a message of its own, which comes only when the others are through.
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


def test_what_test_and_wait_return():
    values, result = np.ones(3), np.zeros(3)
    if RANK:
        WORLD.Barrier()
    request = pycoll.iallreduce(values, result)
    if RANK == 0:
        assert SIZE == 1 or (not request.Test() and request.test() == (False, None))
        WORLD.Barrier()
    assert request.Wait() is True and request.Wait(MPI.Status()) is True
    assert request.Test() is True and request.test() == (True, result) and request.wait() is result
    assert pycoll.ibarrier().wait() is None


WRONG = {
    "recvbuf has 4 elements": (ValueError, lambda: pycoll.iallreduce(np.ones(3), np.ones(4))),
    "sendbuf has dtype float64": (TypeError, lambda: pycoll.iallgather(np.ones(3), np.ones(3 * SIZE, "f4"))),
    "is read-only": (ValueError, lambda: pycoll.iallreduce(np.ones(3), np.frombuffer(bytes(24)))),
    "root=-1": (ValueError, lambda: pycoll.ibcast(np.ones(3), -1)),
    "op='mean'": (ValueError, lambda: pycoll.iallreduce(np.ones(3), op="mean")),
    "algorithm='best'": (ValueError, lambda: pycoll.ibarrier(algorithm="best")),
    "counts": (ValueError, lambda: pycoll.ialltoallv([np.ones(3), [1] * (SIZE + 1)], [None, [1] * SIZE])),
    "unexpected keyword argument 'blocking'": (TypeError, lambda: pycoll.iallreduce(np.ones(3), blocking=True)),
    "missing .* 'sendbuf'": (TypeError, lambda: pycoll.iallreduce()),
    "too many positional": (TypeError, lambda: pycoll.ibarrier(WORLD)),
    "multiple values for argument 'sendbuf'": (TypeError, lambda: pycoll.iallreduce(np.ones(3), sendbuf=np.ones(3))),
    "must be an intracommunicator": (TypeError, lambda: pycoll.ibarrier(comm="world")),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_raise_at_once(message):
    """On one rank alone, which then calls with the right ones."""
    if RANK == SIZE - 1:
        error, call = WRONG[message]
        with pytest.raises(error, match=message):
            call()
    check(begin("allreduce", one := case("allreduce")).wait(), one)


def test_without_a_private_duplicate():
    comm = WORLD.Dup()
    with pytest.raises(RuntimeError, match=r"pycoll\.attach"):
        pycoll.ibarrier(comm=comm)
    pycoll.attach(comm)
    pycoll.ibarrier(comm=comm).Wait()
    comm.Free()


@pytest.mark.parametrize("name", ["Waitall", "Waitany", "Waitsome", "Testall", "Testany", "Testsome", "waitall"])
def test_mpi_refuses_pycolls_requests(name):
    request = pycoll.iallreduce(np.ones(3))
    with pytest.raises(TypeError):
        getattr(MPI.Request, name)([MPI.REQUEST_NULL, request])
    np.testing.assert_array_equal(request.wait(), np.full(3, SIZE))


@pytest.mark.parametrize("finish", [finish_all, finish_any, finish_by_testing_all])
def test_together_with_mpis_requests(finish):
    came, one = np.empty(1, int), case("allgather")
    requests = [
        WORLD.irecv(source=LEFT, tag=1),
        begin("allgather", one),
        WORLD.Irecv(came, LEFT, 2),
        pycoll.ibarrier(),
        WORLD.isend({"from": RANK}, RIGHT, 1),
        WORLD.Isend(np.array([RANK]), RIGHT, 2),
    ]
    results = finish(requests, range(len(requests)))
    assert results[0] == {"from": LEFT} and came[0] == LEFT
    assert [results[i] for i in (2, 3, 4, 5)] == [None] * 4
    check(results[1], one)


def test_without_requests():
    assert pycoll.waitall([]) == []
    assert pycoll.waitany([]) == (MPI.UNDEFINED, None)
    assert pycoll.testall([]) == (True, [])
    nothing = [MPI.REQUEST_NULL] * 2
    assert (pycoll.waitall(nothing), pycoll.testall(nothing)) == ([None] * 2, (True, [None] * 2))


def test_waitany_gives_each_request_once():
    """As MPI's does: what is complete and known to be is passed over."""
    requests = [pycoll.iallreduce(np.full(3, n)) for n in range(4)] + [MPI.REQUEST_NULL]
    assert sorted(pycoll.waitany(requests)[0] for _ in range(4)) == [0, 1, 2, 3]
    assert pycoll.waitany(requests) == (MPI.UNDEFINED, None)


def test_testall_takes_nothing_before_all_are_complete():
    requests = [WORLD.irecv(source=LEFT, tag=1), WORLD.isend(RANK, RIGHT, 1)]
    if RANK:
        WORLD.Barrier()
    requests.append(pycoll.ibarrier())
    if RANK == 0:
        for _ in range(20):
            assert SIZE == 1 or pycoll.testall(requests) == (False, None)
        WORLD.Barrier()
    assert pycoll.waitall(requests) == [LEFT, None, None]


@pytest.mark.parametrize("algorithm", algorithms_of("allreduce"))
@pytest.mark.parametrize("finish", ["Wait", "waitall"])
def test_floating_point_errors_come_out_of_their_own_wait(algorithm, finish):
    sends = [np.ones(50), np.full(50, 1e308), np.ones(50)]
    recvs = [np.zeros(50) for _ in sends]
    raised = []
    with np.errstate(all="raise"):
        requests = [pycoll.iallreduce(*pair, algorithm=algorithm) for pair in zip(sends, recvs)]
        for i in (2, 1, 0) if RANK % 2 else (0, 1, 2):
            try:
                requests[i].Wait() if finish == "Wait" else pycoll.waitall([requests[i]])
            except FloatingPointError:
                raised.append(i)
                assert requests[i].Test()  # it is over, and tells of its error once
    assert raised in ([], [1])
    assert (SIZE > 1) == any(WORLD.allgather(raised))
    for recv, expected in zip(recvs, (SIZE, np.inf if SIZE > 1 else 1e308, SIZE)):
        np.testing.assert_array_equal(recv, np.full(50, expected))


def concatenate(incoming, inout, datatype):
    """Numbers by their digits: associative, not commutative."""
    left, right = np.frombuffer(incoming, "i8"), np.frombuffer(inout, "i8")
    right[...] = left * 10 ** np.char.str_len(right.astype("U")) + right


@pytest.mark.parametrize("primitive", ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"])
def test_operations_of_the_users(primitive):
    """Not commutative, several in flight, and freed as soon as their request is complete."""
    requests = []
    for length in (1, 3, 100):
        op = MPI.Op.Create(concatenate, commute=False)
        wide = length * (SIZE if primitive == "reduce_scatter" else 1)
        requests.append((getattr(pycoll, f"i{primitive}")(np.full(wide, RANK + 1), op=op), op, length))
    last = {"scan": RANK + 1, "exscan": RANK}.get(primitive, SIZE)
    for request, op, length in requests[:: 1 if RANK % 2 else -1]:
        result = request.wait()
        op.Free()
        if result is not None:
            digits = int("".join(str(rank + 1) for rank in range(last)))
            np.testing.assert_array_equal(result, np.full(length, digits))


def test_lists_of_arrays_go_as_one():
    arrays = [np.full(n, n + RANK) for n in (1, 20, 3)]
    request, other = pycoll.iallreduce(arrays), pycoll.ibcast([np.full(2, RANK), np.full(3, RANK)], SIZE - 1)
    assert request.wait() is arrays
    for n, array in zip((1, 20, 3), arrays):
        np.testing.assert_array_equal(array, np.full(n, n * SIZE + SIZE * (SIZE - 1) // 2))
    assert all((array == SIZE - 1).all() for array in other.wait())


def test_send_buffers_with_gaps():
    grid = np.arange(24).reshape(4, 6) + RANK
    requests = [pycoll.iallreduce(grid[:, ::2], algorithm=name) for name in algorithms_of("allreduce")]
    for request in requests:
        np.testing.assert_array_equal(request.wait().reshape(4, 3), (grid - RANK)[:, ::2] * SIZE + sum(range(SIZE)))


def test_buffers_live_as_long_as_they_are_needed():
    """What only the call knows of stays while it is in flight, and goes when it is done."""
    references = []

    def start(number):
        send, recv = np.full(LARGE // 8, number), np.empty(LARGE // 8, int)
        references.extend([weakref.ref(send), weakref.ref(recv)])
        return pycoll.iallreduce(send, recv, algorithm="ring")

    requests = [start(number) for number in range(4)]
    gc.collect()
    rubbish = [np.full(LARGE // 8, -1) for _ in range(4)]
    for number, request in enumerate(requests):
        assert (request.wait() == number * SIZE).all()
    del rubbish, request, requests
    gc.collect()
    assert [reference() for reference in references] == [None] * 8


def test_a_request_that_is_dropped_goes_on():
    recv = np.empty(LARGE // 8)
    pycoll.iallreduce(np.ones(LARGE // 8), recv, algorithm="ring")
    gc.collect()
    pycoll.barrier()
    while progress.flights:
        progress.progress()
    assert (recv == SIZE).all()
    WORLD.Barrier()


@pytest.mark.parametrize("primitive, algorithm", [("allreduce", "tree"), ("scatterv", "tree"), ("alltoallv", "ring")])
def test_nothing_is_left_of_those_that_are_complete(primitive, algorithm):
    """Each request that MPI did not get back would stay in memory, half a kilobyte or more."""

    def run(times):
        one = case(primitive, count=1)
        for _ in range(times):
            begin(primitive, one, algorithm).Wait()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4  # KiB

    before = run(100)
    assert run(1500 if SIZE <= 2 else 200) - before < 500


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


# A programme: starts, and between them waits and other things; each rank waits in an order of its own.
STEPS = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(PAIRS), st.integers(0, 3), st.integers(0, 400), st.integers(0, 7)),
    st.tuples(st.sampled_from(["wait", "test", "blocking", "native", "ring", "waitall"]), st.integers(0, 1000)),
)


@settings(max_examples=100 if SIZE < 4 else 25)
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
            pycoll.waitall([WORLD.Ibarrier()])  # plain Barrier lets no flight go on, and others may wait for one
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
