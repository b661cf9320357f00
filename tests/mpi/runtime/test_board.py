"""Boards: the ranks of a host synchronize through shared memory, while MPI progresses."""

import time

import numpy as np
import pytest

import pycoll
from pycoll.base import settings
from pycoll.base.errors import CollectiveTimeout
from pycoll.runtime import board, registered
from pycoll.runtime.attach import attach
from pycoll.runtime.meeting import MessageMeeting
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory"),
    pytest.mark.skipif(not board.USABLE, reason="this processor does not order stores"),
]

COUNT = 1 << 14  # float32 elements, which are more bytes than the least for any primitive


@pytest.fixture
def comm():
    """Return a communicator with registered memory."""
    one = WORLD.Dup()
    pycoll.empty(1, comm=one)
    yield one
    one.Free()


def allreduce(comm):
    """Check the results of calls at several addresses."""
    room = [pycoll.zeros(COUNT + 64, np.float32, comm=comm) for _ in range(2)]
    for start in range(0, 64, 7):
        room[0][:] = RANK + start
        result = pycoll.allreduce(room[0][start : start + COUNT], room[1][start : start + COUNT], comm=comm)
        np.testing.assert_array_equal(result, SIZE * (SIZE - 1) / 2 + SIZE * start)
    for array in room:
        pycoll.free(array, comm=comm)


def test_no_message(comm):
    assert attach(comm).registered.board
    with pycoll.traffic() as sent:
        allreduce(comm)
    assert sent.messages == 0


@pytest.mark.parametrize("nbytes", [1, 1 << 22])
def test_messages_progress_while_a_rank_waits(comm, nbytes):
    """Check that a rank that waits at a board completes its message, on which another one depends."""
    one, other = 0, SIZE - 1
    message = np.full(nbytes, 7, np.uint8)
    request = WORLD.Isend(message, other) if RANK == one else None
    if RANK == other:
        time.sleep(0.01)
        received = np.empty_like(message)
        WORLD.Recv(received, one)
        assert (received == 7).all()
    allreduce(comm)
    if request:
        request.Wait()


def test_other_tasks_progress_while_a_rank_waits(comm):
    other = WORLD.Dup()
    pycoll.attach(other)
    values = np.full(1 << 20, RANK, np.float32)
    request = pycoll.iallreduce(values, comm=other)
    if RANK == SIZE - 1:
        assert (request.wait() == SIZE * (SIZE - 1) / 2).all()
    allreduce(comm)
    if RANK < SIZE - 1:
        assert (request.wait() == SIZE * (SIZE - 1) / 2).all()
    other.Free()


def test_a_rank_that_does_not_come(monkeypatch):
    """Check that a timeout names it."""
    comm = WORLD.Dup()
    arrays = [pycoll.zeros(COUNT, np.float32, comm=comm) for _ in range(2)]
    if RANK:
        monkeypatch.setattr(settings, "TIMEOUT", 0.2)
        with pytest.raises(CollectiveTimeout, match="for rank 0 to send a message to it"):
            pycoll.allreduce(*arrays, comm=comm)
    WORLD.Barrier()


def test_processors_that_do_not_order_stores(monkeypatch):
    """Check that the ranks synchronize with messages there."""
    monkeypatch.setattr(registered, "USABLE", False)
    comm = WORLD.Dup()
    pycoll.empty(1, comm=comm)
    assert attach(comm).registered.areas
    with pycoll.traffic() as sent:
        allreduce(comm)
    assert sent.messages > 0
    comm.Free()


def test_the_most_numbers(comm):
    """Check a table with the places of the blocks of all ranks."""
    send, recv = (pycoll.zeros(SIZE * COUNT, np.float32, comm=comm) for _ in range(2))
    send[:] = RANK
    counts = [COUNT] * SIZE
    for _ in range(3):
        pycoll.alltoallv((send, counts), (recv, counts), comm=comm)
        np.testing.assert_array_equal(recv, np.repeat(np.arange(SIZE), COUNT))


@pytest.mark.parametrize("by_messages", [False, True])
def test_the_last_two_numbers(comm, by_messages):
    """Check that a rank may write only these, and that they can be read without the others."""
    channel = attach(comm)
    meeting = MessageMeeting(channel, 5, in_flight=False) if by_messages else channel.meeting(5, None)
    for number in range(3):
        meeting.enter((number, RANK) if RANK else (7, 8, 9, number, RANK))
        meeting.opening.run()
        assert [tuple(end) for end in meeting.ends()] == [(number, rank) for rank in range(SIZE)]
        assert meeting.rows()[0] == (7, 8, 9, number, 0)
        meeting.closing.run()


def test_a_row_is_written_once(comm):
    """Check that a call that a signal has interrupted, and that is repeated, does not change what others read."""
    meeting = attach(comm).meeting(3, None)
    meeting.enter((1, 2, RANK))
    meeting.opening.run()
    found = meeting.rows()
    assert found == tuple((1, 2, rank) for rank in range(SIZE))
    WORLD.Barrier()
    meeting.enter((3, 4, RANK))
    meeting._board.number -= 1
    meeting.begin()
    assert meeting.rows() == found
