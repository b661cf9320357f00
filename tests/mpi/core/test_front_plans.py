"""Plans: calls of one kind with buffers at a different address each time, between calls of other kinds."""

import gc
import mmap
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base.errors import CollectiveTimeout
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
OURS = pycoll.Comm(WORLD)
MIDDLE, LONG = (1 << 10) + 5, (1 << 14) + 5  # float32 elements, too many for one entry or one slot
OFFSETS = 64  # number of addresses
KEPT = {count: (np.zeros(count, np.float32), np.zeros(count, np.float32)) for count in (0, 1, 5, MIDDLE, LONG)}


def window(area, start, count):
    return area[start : start + count]


@examples(20)
@given(st.data())
def test_calls_in_any_order_at_any_address(data):
    """Each result belongs to its own input, whichever executable or address serves the call."""
    a, b = np.zeros(LONG + OFFSETS, np.float32), np.zeros(LONG + OFFSETS, np.float32)
    for _ in range(data.draw(st.integers(1, 30), "calls")):
        count = data.draw(st.sampled_from((0, 1, 5, MIDDLE, LONG)), "count")
        x, y = (window(area, data.draw(st.integers(0, 3), "place"), count) for area in (a, b))
        number = data.draw(st.integers(0, 99), "number")
        form = data.draw(
            st.sampled_from(
                (
                    "plain",
                    "kept",
                    "kept in place",
                    "gaps",
                    "typed",
                    "counted",
                    "in place",
                    "nonblocking",
                    "new",
                    "bcast",
                )
            ),
            "form",
        )
        a[:], b[:] = number + RANK, -1
        expected = np.full(count, number * SIZE + SIZE * (SIZE - 1) / 2, np.float32)
        if form == "plain":
            OURS.Allreduce(x, y)
        elif form == "kept":
            mine, result = KEPT[count]
            mine[:] = x
            y[:] = pycoll.allreduce(mine, result)
        elif form == "kept in place":
            mine, result = KEPT[count]
            result[:] = x
            y[:] = pycoll.allreduce(MPI.IN_PLACE, result)
        elif form == "gaps":
            pycoll.allreduce(np.stack([x, x + 1], axis=1)[:, 0], y)
        elif form == "typed":
            OURS.Allreduce([x, MPI.FLOAT], [y, MPI.FLOAT])
        elif form == "counted":
            OURS.Allreduce([x, count, MPI.FLOAT], (y, MPI.FLOAT))
        elif form == "in place":
            y[:] = x
            OURS.Allreduce(MPI.IN_PLACE, [y, MPI.FLOAT])
        elif form == "nonblocking":
            OURS.Iallreduce(x, y).Wait()
        elif form == "new":
            y[:] = pycoll.allreduce(x)
        else:
            y[:] = x
            pycoll.bcast(y, SIZE - 1)
            expected = np.full(count, number + SIZE - 1, np.float32)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(a, number + RANK)
        assert (b == -1).sum() == b.size - count, "what lies beside the buffer stays"


@pytest.mark.parametrize("count", [3, MIDDLE, LONG])
def test_a_buffer_that_is_not_as_it_was(count):
    area, y = np.ones((count, 2), np.float32), np.zeros(count, np.float32)
    for _ in range(3):
        pycoll.allreduce(np.ones(count, np.float32), y)
    assert (pycoll.allreduce(area[:, 0], y) == SIZE).all(), "an input with gaps"
    with pytest.raises(ValueError, match="recvbuf is not C-contiguous"):
        pycoll.allreduce(y, area[:, 1])
    for _ in range(3):
        OURS.Allreduce(np.ones(count, np.float32), y)
    with pytest.raises(ValueError, match="sendbuf is not contiguous"):
        OURS.Allreduce(area[:, 0], y)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(np.ones(count, np.float32), y)
    both = np.ones(2 * count, np.float32)
    with pytest.raises(ValueError, match="overlap"):
        pycoll.allreduce(both[1 : count + 1], both[:count])


@pytest.mark.parametrize("count", [5, MIDDLE, LONG])
def test_results_that_are_no_receive_buffer_as_given(count):
    for number in range(4):
        send = np.full(SIZE * count, number, np.float32)
        assert (pycoll.reduce_scatter(MPI.IN_PLACE, send) == number * SIZE).all()
        assert pycoll.reduce_scatter(MPI.IN_PLACE, send).shape == (count,)
        result = pycoll.reduce(np.full(count, number, np.float32), np.zeros(count, np.float32))
        assert (result == number * SIZE).all() if RANK == 0 else result is None
        blocks = np.zeros((SIZE, count), np.float32)
        assert pycoll.allgatherv(np.full(count, RANK, np.float32), [blocks, [count] * SIZE]) is blocks
        assert (blocks.T == np.arange(SIZE)).all()
        one, other = (pycoll.allreduce(np.full(count, number, np.float32)) for _ in range(2))
        assert one is not other and (one == other).all()


def test_gaps_between_blocks_stay():
    counts, displs = [2] * SIZE, [3 * rank for rank in range(SIZE)]
    for number in range(4):
        table = np.full(3 * SIZE, -1.0)
        OURS.Allgatherv(np.full(2, float(number)), [table, (counts, displs)])
        assert (table.reshape(SIZE, 3) == [number, number, -1]).all()


@pytest.mark.parametrize("count", [7, MIDDLE, LONG])
def test_many_in_flight(count):
    comm = WORLD.Dup()
    pycoll.attach(comm)
    for turn in range(3):
        results = [np.zeros(count, np.float32) for _ in range(48)]
        requests = [
            pycoll.iallreduce(np.full(count, np.float32(number + turn)), result, comm=comm)
            for number, result in enumerate(results)
        ]
        gc.collect()
        for request in requests[:: 1 if turn % 2 else -1]:
            request.wait()
        for number, result in enumerate(results):
            assert (result == (number + turn) * SIZE).all()
    comm.Free()


@pytest.mark.parametrize("nbytes", [40, 4 * MIDDLE, 4 * LONG])
def test_the_beginning_of_plain_memory(nbytes):
    """A call may use only the beginning of plain memory, as in the demos of mpi4py."""
    length = 2 * nbytes
    for number in range(4):
        for memory in (mmap.mmap(-1, length), bytearray(length), MPI.Alloc_mem(length)):
            values = np.frombuffer(memory, np.uint8)
            values[:] = RANK
            OURS.Bcast([memory, nbytes, MPI.BYTE], number % SIZE)
            assert (values[:nbytes] == number % SIZE).all() and (values[nbytes:] == RANK).all()
            values[:] = number
            OURS.Allreduce(MPI.IN_PLACE, [memory, nbytes // 4, MPI.INT])
            assert (values[:nbytes:4] == number * SIZE).all() and (values[nbytes:] == number).all()


def test_blocks_of_several_calls_in_one_array():
    """A call does not touch the memory between its blocks, which belongs to the other calls in flight."""
    for number in range(4):
        table = np.full((2, SIZE), -1.0)
        requests = [
            OURS.Iallgatherv(
                np.full(1, 10.0 * number + part), [table, ([1] * SIZE, [part * SIZE + rank for rank in range(SIZE)])]
            )
            for part in range(2)
        ]
        pycoll.waitall(requests[::-1])
        assert (table.T == [10.0 * number, 10.0 * number + 1]).all()


def test_a_count_and_a_displacement_are_no_counts():
    for _ in range(3):
        for counts in ([1] * SIZE, (1, 1)):
            given = [np.arange(SIZE + 1.0), counts, MPI.DOUBLE]
            expected = 1.0 if type(counts) is tuple else 0.0
            block = np.full(1, -1.0)
            if type(counts) is tuple:
                OURS.Bcast(given, 0)
                continue
            OURS.Scatterv(given if RANK == 0 else None, block)
            assert block[0] == RANK + expected


def test_fields_that_a_dtype_hides():
    whole = np.dtype([("a", "i4"), ("h", "i4"), ("c", "i4")])
    for number in range(4):
        base = np.zeros(3, whole)
        base["a"], base["h"] = number + RANK, 100 + RANK
        pycoll.bcast(base[["a", "c"]], 0)
        assert (base["a"] == number).all() and (base["h"] == 100).all(), "each call moves whole elements"


def test_results_where_buffers_are_plain_memory():
    for _ in range(3):
        for memory in (bytearray(8 * SIZE), np.zeros(8 * SIZE, np.uint8)):
            found = pycoll.allgatherv(np.full(1, RANK + 1.0), [memory, [1] * SIZE, MPI.DOUBLE])
            assert np.frombuffer(memory, np.float64).tolist() == [rank + 1.0 for rank in range(SIZE)]
            assert found is memory or np.shares_memory(found, np.frombuffer(memory, np.uint8))
            OURS.Allgatherv(np.full(1, RANK + 1.0), [memory, [1] * SIZE, MPI.DOUBLE])


def test_one_count_in_an_array():
    given = np.arange(2.0) + RANK
    for _ in range(3):
        table = np.zeros((SIZE, 2))
        OURS.Allgather([given, np.array(2), MPI.DOUBLE], [table, np.array(2), MPI.DOUBLE])
        assert (table[:, 0] == np.arange(SIZE)).all()


def test_messages_are_counted_after_a_plan_was_made():
    """A new epoch begins with the block, so that programs are bound again."""
    for call in (
        lambda x: pycoll.allreduce(x, algorithm="ring"),
        lambda x: pycoll.iallreduce(x, algorithm="ring").wait(),
    ):
        for _ in range(3):
            call(np.ones(3 * SIZE))
            with pycoll.traffic() as sent:
                for _ in range(3):
                    call(np.ones(3 * SIZE))
            assert sent.messages == 3 * 2 * (SIZE - 1)


CALLS = {
    "allreduce": lambda x, y: pycoll.allreduce(x, y),
    "iallreduce": lambda x, y: pycoll.iallreduce(x, y).wait(),
    "Allreduce": lambda x, y: OURS.Allreduce(x, y) or y,
    "Iallreduce": lambda x, y: OURS.Iallreduce(x, y).Wait() and y,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("count", [4, 20_000])
def test_one_array_twice_is_no_plan_for_two_arrays(call, count):
    for _ in range(3):
        same = np.ones(count)
        assert (CALLS[call](same, same) == SIZE).all(), "in place"
        assert (CALLS[call](np.full(count, RANK + 1.0), np.full(count, 100.0)) == SIZE * (SIZE + 1) / 2).all()


def test_an_overlapping_block_is_no_plan_for_one_that_lies_apart():
    for _ in range(3):
        whole = np.full(3 * SIZE, RANK + 1.0)
        assert (pycoll.reduce_scatter(whole, whole[:3]) == SIZE * (SIZE + 1) / 2).all()
        table = np.full(5, -1.0)
        assert (pycoll.reduce_scatter(np.ones(3 * SIZE), table[:3]) == SIZE).all() and (table[3:] == -1).all()


@pytest.mark.skipif(SIZE != 2, reason="the counts are those of two ranks")
@pytest.mark.parametrize("alltoallv", [pycoll.alltoallv, OURS.Alltoallv])
def test_equal_numbers_may_be_counts_or_displacements(alltoallv):
    """Check two calls with the same numbers, of which they are displacements of different buffers."""
    given = np.array([10.0, 11.0]) * (RANK + 1)
    for _ in range(3):
        came = np.full(2, -1.0)
        alltoallv([given, [1, 1], MPI.DOUBLE], [came, [1, 1], [0, 1], MPI.DOUBLE])
        assert came.tolist() == [10.0 + RANK, 2 * (10.0 + RANK)]
        came[:] = -1
        # rank 1 sends its second number twice, and receives only from rank 0
        counts = [1, 1] if RANK == 0 else [0, 1]
        if RANK == 0:
            alltoallv([given, [1, 0], [0, 1], MPI.DOUBLE], [came, [1, 1], MPI.DOUBLE])
        else:
            alltoallv([given, [1, 1], [1, 1], MPI.DOUBLE], [came, counts, MPI.DOUBLE])
        assert came.tolist() == ([10.0, 22.0] if RANK == 0 else [22.0, -1.0])


def test_results_are_arrays_in_every_call():
    for _ in range(3):
        blocks = np.zeros(2 * SIZE)
        result = pycoll.allgatherv(np.full(2, float(RANK)), [blocks, [2] * SIZE, MPI.DOUBLE])
        assert result is blocks
        block = np.zeros(2)
        send = [np.arange(2.0 * SIZE), [2] * SIZE] if RANK == 0 else None
        assert pycoll.scatterv(send, [block, 2]) is block
        assert pycoll.iallgatherv(block, [blocks, [2] * SIZE]).wait() is blocks
        result = pycoll.gatherv([block, 2], [blocks, [2] * SIZE] if RANK == 0 else None)
        assert result is (blocks if RANK == 0 else None)


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the root")
def test_a_receive_buffer_that_is_not_significant_is_checked_in_every_call():
    block = np.ones(2)
    for _ in range(3):
        pycoll.gatherv([block, 2], [np.zeros(2 * SIZE), [2] * SIZE] if RANK == 0 else None)
        if RANK:
            with pytest.raises(TypeError, match="recvbuf"):
                pycoll.gatherv([block, 2], MPI.SUM)


@pytest.mark.skipif(SIZE == 1, reason="nothing is pending")
def test_buffers_live_while_messages_are_pending_after_a_timeout():
    comm = WORLD.Dup()
    pycoll.attach(comm)
    for _ in range(2):
        pycoll.iallreduce(np.ones(20_000), np.zeros(20_000), comm=comm).wait()
    send, recv = np.full(20_000, RANK + 1.0), np.zeros(20_000)
    if RANK == 0:
        request = pycoll.iallreduce(send, recv, comm=comm)
        alive = [weakref.ref(send), weakref.ref(recv)]
        request.set_timeout(0.05)
        with pytest.raises(CollectiveTimeout):
            while not request.Test():
                pass
        del request, send, recv
        gc.collect()
        assert all(one() is not None for one in alive)
    WORLD.Barrier()
