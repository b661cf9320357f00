"""Requests of nonblocking collectives: results of waits and tests, use beside MPI requests, and errors."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import algorithms_of
from tests.mpi.native import RANK, SIZE, WORLD

from .nonblocking import (
    LEFT,
    RIGHT,
    begin,
    case,
    check,
    finish_all,
    finish_any,
    finish_by_testing_all,
)

pytestmark = pytest.mark.mpi


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
    "unexpected keyword argument 'recvbuff'": (
        TypeError,
        lambda: pycoll.iallreduce(sendbuf=np.ones(3), recvbuff=np.ones(3)),
    ),
    "missing .* 'sendbuf'": (TypeError, lambda: pycoll.iallreduce()),
    r"ibarrier\(\): too many positional arguments": (TypeError, lambda: pycoll.ibarrier(WORLD)),
    "multiple values for argument 'sendbuf'": (TypeError, lambda: pycoll.iallreduce(np.ones(3), sendbuf=np.ones(3))),
    "must be an intracommunicator": (TypeError, lambda: pycoll.ibarrier(comm="world")),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_raise_at_once(message):
    """An error on one rank sends nothing: this rank can call again with the right arguments."""
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
    """As in MPI, waitany skips requests that it has already returned."""
    requests = [pycoll.iallreduce(np.full(3, n)) for n in range(4)] + [MPI.REQUEST_NULL]
    assert sorted(pycoll.waitany(requests)[0] for _ in range(4)) == [0, 1, 2, 3]
    assert pycoll.waitany(requests) == (MPI.UNDEFINED, None)


def test_waitany_skips_inactive_messages():
    """A persistent request of MPI is given once each time it was started."""
    came = np.empty(1)
    messages = [WORLD.Send_init(np.ones(1), RIGHT, 3), WORLD.Recv_init(came, LEFT, 3)]
    for _ in range(2):
        pycoll.startall(messages)
        requests = [*messages, pycoll.iallreduce(np.ones(3))]
        assert sorted(pycoll.waitany(requests)[0] for _ in requests) == [0, 1, 2]
        assert pycoll.waitany(requests) == (MPI.UNDEFINED, None)
        assert pycoll.testany(requests) == (MPI.UNDEFINED, True, None)
    for message in messages:
        message.Free()


def test_a_request_whose_completion_was_reported_is_false():
    request = pycoll.iallreduce(np.ones(3))
    assert request
    while request:
        request.Test()
    with pycoll.allreduce_init(np.ones(3)) as request:
        assert request
        request.Start()
        request.Wait()
        assert request
    assert not request


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
                assert requests[i].Test()  # the request is complete, and reports its error only once
    assert raised in ([], [1])
    assert (SIZE > 1) == any(WORLD.allgather(raised))
    for recv, expected in zip(recvs, (SIZE, np.inf if SIZE > 1 else 1e308, SIZE)):
        np.testing.assert_array_equal(recv, np.full(50, expected))


def test_a_persistent_request_is_started_after_its_communicator_was_freed():
    comm = WORLD.Dup()
    persistent = pycoll.allreduce_init(np.ones(3), comm=comm, algorithm="ring")
    persistent.Start()
    persistent.Wait()
    comm.Free()
    with pytest.raises(RuntimeError, match="it was freed"):
        persistent.Start()
    persistent.Free()
