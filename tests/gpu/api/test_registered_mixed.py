"""Registered buffers in host memory on some ranks, buffers in GPU memory on others: the data is sent by messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.arguments.device_arrays import cupy
from tests.drawn import examples
from tests.gpu.api.test_collectives import produced
from tests.mpi.api import test_registered
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


class Call(test_registered.Call):
    """A call with buffers in given GPU memory, whose contents are still being computed."""

    def place(self, memory):
        host = [np.zeros(one.size, "f4") for one in memory]
        return [on_gpu(argument, host, memory) for argument in super().place(host)]


def on_gpu(argument, host, memory):
    """Return the part of GPU memory for a part of host memory, with the same contents; other objects as they are."""
    if not isinstance(argument, np.ndarray):
        return argument
    which = int(np.shares_memory(argument, host[1]))
    start = (argument.ctypes.data - host[which].ctypes.data) // 4
    found = memory[which][start : start + argument.size]
    found[...] = cupy().asarray(argument)
    return found


@examples(10)
@given(data=st.data())
def test_drawn(together, xp, registered, data):
    """Ranks whose buffers are in different memory agree, in every collective and form, and in turn with others."""
    together(check_drawn, xp, registered[0], data)


def check_drawn(xp, comm, data):
    count = SIZE * test_registered.COUNT + 64
    memory = {
        "registered": [pycoll.zeros(count, "f4", comm=comm) for _ in range(2)],
        "ordinary": [np.zeros(count, "f4") for _ in range(2)],
        "GPU": [xp.zeros(count, "f4") for _ in range(2)],
    }
    for number in range(data.draw(st.integers(1, 6), "calls")):
        primitive, algorithm = data.draw(st.sampled_from(test_registered.PAIRS), "pair")
        kinds = data.draw(st.lists(st.sampled_from(list(memory)), min_size=SIZE, max_size=SIZE), "memory")
        form = data.draw(st.sampled_from(("blocking", "nonblocking", "persistent")), "form")
        given = {
            "count": data.draw(st.sampled_from((1, 100, test_registered.COUNT)), "count"),
            "in_place": data.draw(st.booleans(), "in place"),
            "starts": (data.draw(st.integers(0, 63), "send"), data.draw(st.integers(0, 63), "recv")),
        }
        call = (Call if kinds[RANK] == "GPU" else test_registered.Call)(comm, primitive, algorithm, number, **given)
        expected = test_registered.Call(comm, primitive, algorithm, number, **given).reference()
        found = call.run(memory[kinds[RANK]], form)
        np.testing.assert_array_equal(found.get() if hasattr(found, "get") else found, expected)
