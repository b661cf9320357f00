"""Calls of `pycoll.Comm` so short that they are passed on to MPI with the arguments of the caller."""

import gc
import sys
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll import core
from pycoll.runtime.attach import attach
from pycoll.runtime.open_core import why_unusable
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


@pytest.fixture(params=["shared memory", "native"])
def comm(request):
    """Yield a communicator that may use native collectives, although the tests set PYCOLL_NATIVE=0."""
    made = pycoll.Comm(WORLD).Dup()
    may_be_native(made, request.param == "native")
    yield made
    made.Free()


@pytest.fixture
def short():
    """Yield such a communicator that shares no memory."""
    made = pycoll.Comm(WORLD).Dup()
    may_be_native(made, True)
    yield made
    made.Free()


def may_be_native(comm, several_hosts=False):
    """Let MPI run calls, even if CuPy is installed; with `several_hosts`, as if each rank were on a host of its own."""
    channel = attach(comm)
    channel.facts = replace(channel.facts, native=True, host_memory=True)
    if several_hosts:
        # with the rules without the core, which leave the short calls of all collectives to MPI
        channel.facts = replace(channel.facts, hosts=tuple(range(SIZE)), library="MPICH", core=False)


def messages(call):
    with pycoll.traffic() as sent:
        call()
    return sent.messages


X, N = np.arange(1.0, 7.0, dtype=np.float32) + RANK, 6
FORMS = [
    lambda x: x,
    lambda x: [x, MPI.FLOAT],
    lambda x: (x, x.size, MPI.FLOAT),
    lambda x: [x, (x.size, 0), "f"],
]


@pytest.mark.parametrize("op, result", [("sum", SIZE), ("max", 1), ("prod", 1)])
def test_operations_may_be_names(comm, op, result):
    for _ in range(3):
        for reduction in comm.Allreduce, comm.Scan, comm.Iallreduce:
            one, came = np.ones(1), np.zeros(1)
            request = reduction(one, came, op)
            if request is not None:
                request.Wait()
            assert came[0] == (result if reduction != comm.Scan or op != "sum" else RANK + 1)


@pytest.mark.parametrize("turn", range(3))
def test_ranks_decide_alike_however_they_write_their_arguments(comm, turn):
    for step in range(8):
        form = FORMS[(RANK + step + turn) % len(FORMS)]
        result = np.zeros(N, np.float32)
        comm.Allreduce(form(X), form(result))
        np.testing.assert_array_equal(result, np.arange(1, 7) * SIZE + SIZE * (SIZE - 1) / 2)
        comm.Iallreduce(form(X), form(result), MPI.MAX).Wait()
        assert result[0] == SIZE
        comm.Bcast(form(result), root=SIZE - 1)
        comm.Ibcast(form(result), SIZE - 1).Wait()
        everything = np.zeros((SIZE, N), np.float32)
        comm.Allgather(form(X), everything)
        np.testing.assert_array_equal(everything[:, 0], np.arange(1, SIZE + 1))
        everything[:] = 0
        comm.Allgatherv(form(X), [everything, [N] * SIZE])
        np.testing.assert_array_equal(everything[:, 5], np.arange(6, SIZE + 6))
        comm.Reduce_scatter_block(np.ones(SIZE), block := np.zeros(1))
        assert block[0] == SIZE
        comm.Alltoallw(
            [np.full(SIZE, RANK), [1] * SIZE, [8 * i for i in range(SIZE)], [MPI.INT64_T] * SIZE],
            [came := np.zeros(SIZE, int), [8] * SIZE, [8 * i for i in range(SIZE)], [MPI.BYTE] * SIZE],
        )
        assert came.tolist() == list(range(SIZE))
        comm.Barrier()
        comm.Ibarrier().wait()


def test_only_short_calls_are_left_to_mpi(short):
    comm = short
    assert pycoll.explain("allreduce", nbytes=8, comm=comm).algorithm != "native", (
        "functions run the schedules of pycoll"
    )
    limit = (8 << 10) // 8
    for count in (2, limit):
        send, recv = np.ones(count), np.zeros(count)
        assert messages(partial(comm.Allreduce, send, recv)) == 0 and (recv == SIZE).all()
        assert messages(lambda s=send, r=recv: comm.Iallreduce(s, r).Wait()) == 0
    if SIZE > 1:
        longer = np.ones(limit + 1)
        assert messages(lambda: comm.Allreduce(MPI.IN_PLACE, longer)) > 0
        assert messages(lambda: comm.Allreduce(np.ones(2), np.zeros(2), algorithm="ring")) > 0
        assert messages(lambda: pycoll.allreduce(np.ones(2), comm=comm)) > 0


@pytest.mark.skipif(bool(core.problem), reason="there is no compiled core")
def test_between_hosts_nonblocking_calls_run_the_schedules_of_pycoll(short):
    channel, counts = attach(short), [1] * SIZE
    channel.facts = replace(channel.facts, core=True)
    block, blocks = np.ones(1), np.zeros(SIZE)
    for start in (
        short.Ibarrier,
        partial(short.Iallreduce, block, np.zeros(1)),
        partial(short.Iallgather, block, blocks),
        partial(short.Ialltoallv, [np.ones(SIZE), counts], [blocks, counts]),
    ):
        assert (messages(lambda start=start: start().Wait()) > 0) == (SIZE > 1)


@pytest.mark.parametrize("what", [np.int8, np.float16])
def test_nor_are_sums_that_mpi_may_round_otherwise(short, what):
    comm = short
    send, recv = np.ones(3, what), np.zeros(3, what)
    assert (messages(lambda: comm.Allreduce(send, recv)) > 0) == (SIZE > 1)
    assert messages(lambda: comm.Bcast(recv)) == 0, "what is only moved may have any dtype"


def test_a_choice_made_later_is_followed(short):
    comm = short
    send, recv = np.ones(4), np.zeros(4)
    assert messages(lambda: comm.Allreduce(send, recv)) == 0
    comm.Allreduce(send, recv)
    comm.algorithm["Allreduce"] = "ring"
    assert (messages(lambda: comm.Allreduce(send, recv)) > 0) == (SIZE > 1)
    del comm.algorithm["Allreduce"]
    assert messages(lambda: comm.Allreduce(send, recv)) == 0


@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_what_is_in_flight_goes_on_while_mpi_blocks(comm, form):
    """Rank 0 waits in MPI for ranks that first wait for a collective that rank 0 has in flight."""
    other = pycoll.Comm(WORLD).Dup()
    send, large = np.ones(1 << 16), np.zeros(1 << 16)
    short = np.zeros(1)

    def call():
        if form == "blocking":
            comm.Allreduce(np.ones(1), short)
        else:
            comm.Iallreduce(np.ones(1), short).Wait()

    for _ in range(3):
        call()
        request = other.Iallreduce(send, large, algorithm="ring")
        if RANK == 0:
            call()
            request.Wait()
        else:
            request.Wait()
            call()
        assert short[0] == SIZE and (large == SIZE).all()
    other.Free()


def test_native_under_a_name_lets_others_go_on(comm):
    other = pycoll.Comm(WORLD).Dup()
    send, large = np.ones(1 << 16), np.zeros(1 << 16)
    for _ in range(3):
        request = other.Iallreduce(send, large, algorithm="ring")
        if RANK:
            request.Wait()
        pycoll.allreduce(np.ones(2), comm=comm, algorithm="native")
        request.Wait()
        assert (large == SIZE).all()
    other.Free()


def test_requests_of_either_kind_are_waited_for_together(comm):
    shorts, longs = [np.zeros(2) for _ in range(3)], [np.zeros(5000) for _ in range(3)]
    for step in range(3):
        requests = [comm.Iallreduce(np.full(array.size, float(step)), array) for array in (*shorts, *longs)]
        if step == 0:
            pycoll.waitall(requests)
        elif step == 1:
            for _ in requests:
                pycoll.waitany(requests)
            assert pycoll.waitany(requests)[0] == MPI.UNDEFINED
        else:
            while not pycoll.testall(requests)[0]:
                pass
        assert all((array == step * SIZE).all() for array in (*shorts, *longs))
    request = comm.Ibarrier()
    while not request.Test():
        pass
    assert request.test() == (True, None) and request.wait() is None


def test_errors_are_those_of_other_calls(comm):
    comm.Allreduce(np.ones(2), np.zeros(2))
    with pytest.raises(TypeError, match="unexpected keyword"):
        comm.Iallreduce(np.ones(2), recvbuff=np.zeros(2))
    with pytest.raises((ValueError, TypeError)):
        comm.Allreduce([np.ones(2), MPI.FLOAT], [np.zeros(2)])


def test_the_first_call_of_a_kind_with_a_count(comm):
    """The first call works before the limits are known."""
    everything = np.zeros(SIZE * 2, int)
    comm.Allgather([np.full(2, RANK), 2, MPI.INT64_T], [everything, 2, MPI.INT64_T])
    assert everything.tolist() == [rank for rank in range(SIZE) for _ in range(2)]


@pytest.mark.parametrize("dtype", [[("a", "i4"), ("b", "f8")], "S3", "M8[s]", "f2", "g"])
def test_dtypes_that_mpi4py_does_not_know_are_moved_in_every_call(comm, dtype):
    values = np.zeros(3 * 16, np.uint8)
    for turn in range(3):
        comm.Bcast(np.zeros(3))  # determines the limits
        comm.Allgather(np.zeros(1), np.zeros(SIZE))
        comm.Allgatherv(np.zeros(1), [np.zeros(SIZE), [1] * SIZE])
        buf = values.view(dtype).copy() if np.dtype(dtype).itemsize in (3, 12, 2, 4, 8, 16) else None
        if RANK == 0:
            buf.view(np.uint8)[:] = turn + 1
        comm.Bcast(buf)
        assert (buf.view(np.uint8) == turn + 1).all()
        comm.Ibcast(buf).Wait()
        everything = np.zeros((SIZE, *buf.shape), dtype)
        comm.Allgather(buf, everything)
        assert (everything.view(np.uint8) == turn + 1).all()
        comm.Allgatherv(buf, [np.zeros_like(everything), [buf.size] * SIZE])
        comm.Iallgather(buf, everything).Wait()
        comm.Gatherv(buf, [everything, [buf.size] * SIZE] if RANK == 0 else None)


class OnlyMPI:
    """Memory that appears to be readable only by MPI."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


@pytest.mark.skipif("cupy" in sys.modules, reason="CuPy, or what stands in for it, can read such arrays")
def test_ranks_without_a_send_buffer_leave_other_memory_to_mpi_alike(comm):
    from pycoll.arguments.device_arrays import gpu_possible

    if gpu_possible():
        pytest.skip("CuPy can read such arrays")
    for turn in range(3):
        comm.Scatterv([np.ones(SIZE), [1] * SIZE] if RANK == 0 else None, np.zeros(1))  # determines the limits
        comm.Iscatterv([np.ones(SIZE), [1] * SIZE] if RANK == 0 else None, np.zeros(1)).Wait()
        blocks, block = np.full(SIZE, float(turn)), np.zeros(1)
        send = [OnlyMPI(blocks), [1] * SIZE] if RANK == 0 else None
        comm.Scatterv(send, [OnlyMPI(block), 1, MPI.DOUBLE])
        assert block[0] == turn
        comm.Iscatterv(send, [OnlyMPI(block), 1, MPI.DOUBLE]).Wait()


@pytest.mark.parametrize("name", ["Scatterv", "Iscatterv", "Gatherv", "Allgatherv", "Iallgatherv"])
def test_a_count_that_is_less_than_the_array(comm, name):
    blocks, block = np.full((SIZE, 3), -1), np.full(3, -1)
    for count in (0, 2, 3):
        sending = name.lower().endswith("scatterv")
        (blocks if sending else block)[:] = 7
        whole = [blocks, ([count] * SIZE, [3 * rank for rank in range(SIZE)]), MPI.INT64_T]
        part = [block, count, MPI.INT64_T]
        if "Allgatherv".lower() in name.lower():
            arguments = part, whole
        else:
            at_root = whole if RANK == 0 else None
            arguments = (at_root, part) if sending else (part, at_root)
        request = getattr(comm, name)(*arguments)
        if request:
            request.Wait()
        if sending:
            assert block.tolist() == [7] * count + [-1] * (3 - count)
        elif RANK == 0:
            assert (blocks[:, :count] == 7).all() and (blocks[:, count:] == -1).all()
        blocks[:], block[:] = -1, -1


NONBLOCKING = {
    "Iallreduce": lambda send, recv: (send[:8], recv[:8]),
    "Ireduce": lambda send, recv: (send[:8], recv[:8]),
    "Iscan": lambda send, recv: (send[:8], recv[:8]),
    "Iexscan": lambda send, recv: (send[:8], recv[:8]),
    "Ireduce_scatter_block": lambda send, recv: (send[: 8 * SIZE], recv[:8]),
    "Ireduce_scatter": lambda send, recv: (send[: 8 * SIZE], recv[:8], [8] * SIZE),
    "Iallgather": lambda send, recv: (send[:8], recv[: 8 * SIZE]),
    "Iallgatherv": lambda send, recv: (send[:8], [recv[: 8 * SIZE], [8] * SIZE]),
    "Ialltoall": lambda send, recv: (send[: 8 * SIZE], recv[: 8 * SIZE]),
}


@pytest.mark.parametrize("method", NONBLOCKING)
def test_buffers_live_until_the_request_is_complete(comm, method):
    """Check this for calls that are passed on to MPI, because mpi4py does not keep all buffers."""
    for number in range(3):
        send, recv = np.ones(8 * SIZE), np.zeros(8 * SIZE)
        memory = [weakref.ref(send)]
        if RANK not in {"Ireduce": range(1, SIZE), "Iexscan": [0]}.get(method, []):  # these receive nothing
            memory.append(weakref.ref(recv))
        request = getattr(comm, method)(*NONBLOCKING[method](send, recv))
        del send, recv
        gc.collect()
        passed_on = isinstance(request, MPI.Request)  # others may be complete
        assert passed_on or number == 0 or method == "Ireduce_scatter" or attach(comm).near or why_unusable()
        assert not passed_on or all(one() is not None for one in memory)
        request.Wait()
        request = None
        gc.collect()
        assert not any(one() is not None for one in memory)


@pytest.mark.parametrize("method", ["Allreduce", "Reduce", "Scan", "Iallreduce"])
def test_one_buffer_passed_twice(comm, method):
    """Check that it is used in place on some ranks, in the first call and in those that are passed on to MPI."""
    for number in range(3):
        array = np.full(4, RANK + 1.0)
        other = np.zeros(4) if RANK == SIZE - 1 else array
        request = getattr(comm, method)([array, MPI.DOUBLE], [other, MPI.DOUBLE])
        if request:
            request.Wait()
        last = RANK + 1 if method == "Scan" else SIZE
        if method != "Reduce" or RANK == 0:
            assert (other == last * (last + 1) / 2).all(), number


@pytest.mark.parametrize("name", ["Allreduce", "Iallreduce"])
def test_reductions_whose_buffers_have_two_datatypes(comm, name):
    """MPI.INT64_T, and the datatype of an array of int64 in mpi4py, which refuses two datatypes."""
    for number in range(4):
        send, recv = np.full(5, number), np.zeros(5, int)
        arguments = [send, [recv, MPI.INT64_T]] if number == RANK % 2 else [send, recv]
        request = getattr(comm, name)(*arguments)
        if request:
            request.Wait()
        assert (recv == number * SIZE).all()
