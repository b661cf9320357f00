"""Registered buffers in host memory on some ranks, buffers in GPU memory on others: the data is sent by messages."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.gpu.api.test_collectives import produced
from tests.mpi.native import RANK, SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]
COUNT = 1 << 17  # elements of a block: longer than the least length for registered buffers


@pytest.fixture
def registered(xp, way):
    """Yield a communicator, and registered memory of one block for each rank."""
    comm = MPI.COMM_WORLD.Dup()
    yield comm, pycoll.zeros(SIZE * COUNT, comm=comm)
    comm.Free()


def blocks(rank):
    return np.arange(COUNT, dtype="f8") + 1000 * rank


@pytest.mark.parametrize("varying", [False, True], ids=["even", "varying"])
def test_gather(xp, registered, varying):
    """Only the buffer of the root is accessed by other ranks."""
    comm, memory = registered
    memory[:] = -1
    send = produced(xp, blocks(RANK)) if RANK else blocks(RANK)
    recv = memory if RANK == 0 else None
    if varying:
        pycoll.Comm(comm).Gatherv(send, [memory, [COUNT] * SIZE] if RANK == 0 else None)
    else:
        pycoll.gather(send, recv, comm=comm)
    if RANK == 0:
        np.testing.assert_array_equal(memory, np.concatenate([blocks(rank) for rank in range(SIZE)]))


@pytest.mark.parametrize("varying", [False, True], ids=["even", "varying"])
def test_scatter(xp, registered, varying):
    comm, memory = registered
    memory[:] = np.concatenate([blocks(rank) for rank in range(SIZE)])
    recv = xp.empty(COUNT) if RANK else np.empty(COUNT)
    recv[...] = -1
    if varying:
        pycoll.Comm(comm).Scatterv([memory, [COUNT] * SIZE] if RANK == 0 else None, recv)
    else:
        pycoll.scatter(memory if RANK == 0 else None, recv, comm=comm)
    np.testing.assert_array_equal(recv.get() if RANK else recv, blocks(RANK))
