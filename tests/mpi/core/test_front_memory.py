"""Memory that a plan reads stays where it is until the call is complete."""

import array
import threading
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="no rank waits")]


@pytest.fixture
def ours():
    made = pycoll.Comm(WORLD.Dup())
    made.Barrier()
    yield made
    made.Free()


@pytest.mark.parametrize("make", [lambda: bytearray(1 << 16), lambda: array.array("d", bytes(1 << 16))])
def test_it_cannot_be_resized_by_another_thread(ours, make):
    buffer, problems = make(), []

    def resize():
        time.sleep(0.1)
        try:
            buffer.append(1)
        except BufferError as error:
            problems.append(error)

    for _ in range(3):
        WORLD.Barrier()
        if RANK == 0:
            time.sleep(0.4)
        thread = threading.Thread(target=resize) if RANK else None
        if thread:
            thread.start()
        ours.Bcast(buffer)
        if thread:
            thread.join()
    assert len(problems) == (3 if RANK else 0)
    buffer.append(1)  # afterwards it can


def test_an_empty_block_at_the_beginning_of_the_receive_buffer(ours):
    gaps = MPI.DOUBLE.Create_vector(2, 1, 2).Create_resized(0, 32).Commit()
    counts = [0, 1] + [0] * (SIZE - 2)
    for call in range(4):
        recv, other = np.full(8, -1.0), np.full(64, -7.0)
        send = np.array([1.0, 2.0]) + call if RANK == 1 else (recv if call < 2 else other)[:0]
        ours.Allgatherv(send, [recv, (counts, counts), gaps])
        assert recv.tolist() == [-1, -1, -1, -1, 1 + call, -1, 2 + call, -1]
        assert (other == -7).all()
    gaps.Free()


def test_counts_in_a_tuple_are_refused_in_every_call(ours):
    recv = np.empty(SIZE)
    for _ in range(3):
        ours.Allgatherv(np.ones(1), [recv, [1] * SIZE])
    if SIZE > 2:
        for _ in range(3):
            with pytest.raises(ValueError):
                ours.Allgatherv(np.ones(1), [recv, (1,) * SIZE])


@pytest.mark.parametrize("method", ["Bcast", "Ibcast"])
def test_dtypes_that_mpi4py_does_not_know_are_moved_by_mpi_in_every_call(ours, method):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for call in range(4):
        values = np.full(4, call if RANK == 0 else 9, ml_dtypes.bfloat16)
        request = getattr(ours, method)(values, algorithm="native")
        if request is not None:
            request.Wait()
        assert (values == call).all()


def test_gaps_on_one_rank_in_nonblocking_calls(ours):
    gaps = MPI.DOUBLE.Create_vector(4, 1, 2).Commit()
    for call in range(4):
        received = np.zeros(4)
        ours.Ibcast([np.arange(8.0) + call, 1, gaps] if RANK == 0 else received).Wait()
        assert RANK == 0 or received.tolist() == [call, 2 + call, 4 + call, 6 + call]
    gaps.Free()


@pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="two threads call MPI")
def test_threads_whose_blocks_have_gaps_do_not_wait_for_each_other():
    """Begin calls on two communicators in a different order on rank 1, while each rank has a collective in flight."""
    comms = [pycoll.Comm(WORLD.Dup()) for _ in range(4)]
    first, second = comms[2:] if RANK != 1 else comms[:1:-1]
    for comm in comms:
        comm.Barrier()
    gaps = MPI.DOUBLE.Create_vector(2, 1, 2).Create_resized(0, 32).Commit()
    received = [np.zeros(4 * SIZE) for _ in range(2)]
    requests = [first.Iallreduce(np.ones(4), np.zeros(4))]  # those of ranks 0 and 1 wait for each other

    def gather(number, delay):
        time.sleep(delay)
        comms[number].Allgather([np.array([1.0, 2.0]), 2, MPI.DOUBLE], [received[number], 1, gaps])

    threads = [threading.Thread(target=gather, args=(number, 0.3 * (number != (RANK == 1)))) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests.append(second.Iallreduce(np.ones(4), np.zeros(4)))
    pycoll.waitall(requests)
    assert all(one.reshape(SIZE, 4).tolist() == [[1, 0, 2, 0]] * SIZE for one in received)
    for comm in comms:
        comm.Free()
    gaps.Free()
