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
