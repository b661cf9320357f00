"""Private duplicates, bound programs and scratch buffers: isolation and lifetimes."""

import gc
import time
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base.settings import configure
from pycoll.compiler.programs import compiled
from pycoll.runtime.attach import attach, channels
from pycoll.runtime.channel import KEPT_SCRATCH
from tests.memory import traced_memory
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def test_collectives_and_the_callers_messages_do_not_meet():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    token, came = np.array([float(RANK)]), np.empty(1)
    for algorithm in pycoll.algorithms("allreduce"):
        request = WORLD.Irecv(came, MPI.ANY_SOURCE, MPI.ANY_TAG)
        np.testing.assert_array_equal(pycoll.allreduce(np.ones(5), algorithm=algorithm), np.full(5, SIZE))
        WORLD.Send(token, right, 1)
        request.Wait()
        assert came[0] == left


def test_communicators_live_and_die():
    for _ in range(200):
        comm = WORLD.Dup()
        np.testing.assert_array_equal(pycoll.allreduce(np.ones(3), comm=comm), np.full(3, SIZE))
        assert comm.handle in channels
        handle = comm.handle
        comm.Free()
        assert handle not in channels


@pytest.mark.slow
def test_thousands_of_duplicates():
    """No duplicate leaks: MPICH supports 2048 communicators."""
    for _ in range(3_000 if SIZE <= 2 else 500):
        comm = WORLD.Dup()
        attach(comm)
        comm.Free()


def test_a_channel_is_collected_when_its_communicator_is_freed():
    comm = WORLD.Dup()
    channel = weakref.ref(attach(comm))
    pycoll.allreduce(np.ones(3), comm=comm)
    gc.collect()
    gc.disable()
    try:
        comm.Free()
        assert channel() is None
    finally:
        gc.enable()


def test_parts_of_the_world():
    halves = WORLD.Split(RANK % 2, -RANK)
    total = pycoll.allreduce(np.array([RANK]), comm=halves)
    assert total[0] == sum(range(RANK % 2, SIZE, 2))
    order = pycoll.allgather(np.array([RANK]), comm=halves).reshape(-1)
    assert list(order) == sorted(range(RANK % 2, SIZE, 2), reverse=True)
    alone = pycoll.allreduce(np.array([RANK]), comm=MPI.COMM_SELF)
    assert alone[0] == RANK
    halves.Free()


def test_callers_arrays_are_not_kept_alive():
    send, recv = np.ones(1000), np.empty(1000)
    pycoll.allreduce(send, recv)
    pycoll.allreduce(MPI.IN_PLACE, recv)
    references = weakref.ref(send), weakref.ref(recv)
    del send, recv
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_an_address_that_comes_again_with_something_else_in_it():
    memory = np.zeros(64)
    for dtype in ("f8", "i8", "f4", "i4", "u4"):
        for count in (8, 4, 8):
            send, recv = memory[:16].view(dtype)[:count], memory[32:48].view(dtype)[:count]
            send[...] = 100_000_000 * (RANK + 1)
            pycoll.allreduce(send, recv)
            np.testing.assert_array_equal(recv, np.full(count, 100_000_000 * SIZE * (SIZE + 1) // 2).astype(dtype))


def test_one_array_whose_dtype_changes():
    send, recv = np.zeros(4), np.zeros(4)
    for dtype in ("f8", "i8", "f8", "i8"):
        send.dtype = recv.dtype = dtype
        send[...] = 100_000_000 * (RANK + 1)
        pycoll.allreduce(send, recv)
        np.testing.assert_array_equal(recv, np.full(4, 100_000_000 * SIZE * (SIZE + 1) // 2).astype(dtype))
    send.dtype = "f8"
    with pytest.raises(TypeError, match="sendbuf has dtype float64, recvbuf has dtype int64"):
        pycoll.allreduce(send, recv)


@pytest.mark.parametrize("count", [4, 4096])
def test_one_array_that_changes_between_calls(count):
    send, recv = np.ones(count), np.empty(count)
    for step in range(4):
        send[...] = step
        np.testing.assert_array_equal(pycoll.allreduce(send, recv), np.full(count, step * SIZE))
    for array in (send, recv):  # which moves the memory
        array.resize(3 * count, refcheck=False)
    send[...] = 7
    np.testing.assert_array_equal(pycoll.allreduce(send, recv), np.full(send.size, 7 * SIZE))


@pytest.mark.skipif(SIZE > 3, reason="the same with fewer ranks")
def test_many_buffers_and_growing_scratch():
    arrays = [np.full(n, 1.0) for n in range(1, 800)]  # of more kinds than there are plans
    for _ in range(2):
        for values in arrays:
            np.testing.assert_array_equal(pycoll.allreduce(values, algorithm="naive"), values * SIZE)
    for n in (10, 10_000, 100_000, 10):
        values = np.ones(n)
        pycoll.allreduce(MPI.IN_PLACE, values, algorithm="tree")
        np.testing.assert_array_equal(values, np.full(n, SIZE))


@pytest.mark.skipif(SIZE != 2, reason="the same with other numbers of ranks; one rank needs no scratch")
def test_scratch_that_is_kept_is_bounded():
    comm = WORLD.Dup()
    with traced_memory() as allocated:
        for n in (10, 1_000_000, KEPT_SCRATCH // 8 + 2):
            values = np.ones(n)
            found = pycoll.reduce_scatter(values, algorithm="naive", comm=comm)  # rank 0 needs scratch
            np.testing.assert_array_equal(found, SIZE)
            del values, found
            assert allocated() < KEPT_SCRATCH
    comm.Free()


def test_uneven_arrivals():
    """Ranks that arrive late or early do not confuse one collective with the next."""
    numbers = np.random.default_rng(RANK)
    for turn in range(100):
        if numbers.random() < 0.1:
            time.sleep(0.002)
        values = np.full(7, float(turn))
        assert pycoll.allreduce(values, op="max")[0] == turn
        pycoll.bcast(values, turn % SIZE)
        assert pycoll.allgather(values).shape == (SIZE, 7)


def test_forgotten_programs_are_not_mistaken_for_new_ones():
    """Evicted programs are not confused with new ones, which may have the same id, while bound programs live on."""
    memory = np.zeros(128)
    for count in range(40):
        send, recv = memory[:64][: count + 1], memory[64:][: count + 1]
        send[...] = count + 1
        expected = np.full(count + 1, (count + 1) * SIZE)
        compiled.cache_clear()
        pycoll.allreduce(send, recv)
        np.testing.assert_array_equal(recv, expected)


def test_a_buffer_made_read_only_between_calls():
    send, recv = np.ones(4), np.zeros(4)
    pycoll.allreduce(send, recv)
    recv.flags.writeable = False
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(send, recv)


@pytest.mark.parametrize("name", ["segment", "pipeline"])
def test_configure_refuses_what_is_no_size(name):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            configure(**{name: value})
