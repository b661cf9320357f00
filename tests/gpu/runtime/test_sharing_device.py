"""Kernels that access the GPU memory of other ranks: results in every form of call, agreement, memory that is freed."""

import contextlib
import re
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll import info
from pycoll.arguments.device_arrays import cupy
from pycoll.arguments.streams import own_stream
from pycoll.base import settings
from pycoll.runtime import channel, sharing_device
from tests.drawn import examples
from tests.gpu import standin
from tests.gpu.api.test_collectives import is_real
from tests.mpi.api import test_registered
from tests.mpi.native import RANK, SIZE

from .conftest import LEAST

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]
COUNT, PAIRS, SHARED = test_registered.COUNT, test_registered.PAIRS, test_registered.SHARED
FORMS = ("nonblocking", "persistent")


def memory(xp, count=SIZE * COUNT + 64):
    """Return GPU memory for two buffers, the second one not at the beginning of an allocation."""
    return xp.zeros(count, "f4"), xp.zeros(count + 100, "f4")[100:]


class Call(test_registered.Call):
    """A call with buffers in given GPU memory, whose contents are still being computed."""

    def place(self, memory):
        if isinstance(memory[0], np.ndarray):  # the reference
            return super().place(memory)
        host = [np.zeros(one.size, "f4") for one in memory]
        return [on_gpu(argument, host, memory) for argument in super().place(host)]

    def check(self, memory, form="blocking"):
        """Run the call, and compare the result with the result of messages in host memory, bit for bit."""
        expected = self.reference()
        np.testing.assert_array_equal(on_host(self.run(memory, form)), expected)


def on_gpu(argument, host, memory):
    """Return the part of GPU memory for a part of host memory, with the same contents; other objects as they are."""
    if isinstance(argument, list | tuple):
        return type(argument)(on_gpu(one, host, memory) for one in argument)
    if not isinstance(argument, np.ndarray):
        return argument
    which = int(np.shares_memory(argument, host[1]))
    start = (argument.ctypes.data - host[which].ctypes.data) // 4
    found = memory[which][start : start + argument.size]
    found[...] = cupy().asarray(argument)
    return found


def on_host(array):
    return array.get() if hasattr(array, "get") else array


@contextlib.contextmanager
def warned(text):
    """Check that there is one warning, which says this."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert len(found) == 1
    assert re.search(text, str(found[0].message))


def run_without_messages(call, where, form="blocking"):
    with pycoll.traffic() as sent:
        call.run(where, form)
    assert sent.staged == 0
    assert sent.nbytes < 4 * COUNT


def test_beside_registered_memory(xp, ipc):
    """Calls on registered memory, on GPU memory, and on one of them on each rank take turns."""
    registered, where = (pycoll.zeros(1 << 17, "f4", comm=ipc), pycoll.zeros(1 << 17, "f4", comm=ipc)), memory(xp)
    for _ in range(3):
        registered[0][:] = RANK
        pycoll.allreduce(*registered, comm=ipc)
        assert (registered[1] == sum(range(SIZE))).all()
        run_without_messages(Call(ipc, "allreduce", "ring"), where)
        mixed = [one[:COUNT] for one in (registered if RANK else where)]
        mixed[0][...] = 1
        pycoll.allreduce(*mixed, comm=ipc)
        assert (on_host(mixed[1]) == SIZE).all()


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_every_algorithm(xp, ipc, primitive, algorithm, in_place):
    """The results are the same as with messages, bit for bit, and no data is sent."""
    call, where = Call(ipc, primitive, algorithm, in_place=in_place), memory(xp)
    run_without_messages(call, where)
    call.check(where)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive", SHARED)
def test_the_other_forms(xp, ipc, primitive, in_place, form):
    call, where = Call(ipc, primitive, None, in_place=in_place), memory(xp)
    run_without_messages(call, where, form)
    call.check(where, form)


@examples(10)
@given(data=st.data())
def test_drawn(together, xp, ipc, data):
    """Calls of any kind and length, at any address, with buffers in host memory on some ranks."""
    together(check_drawn, xp, ipc, data)


def check_drawn(xp, comm, data):
    kinds = {"host": [np.zeros(SIZE * COUNT + 64, "f4") for _ in range(2)], "GPU": memory(xp)}
    for number in range(data.draw(st.integers(1, 6), "calls")):
        primitive, algorithm = data.draw(st.sampled_from(PAIRS), "pair")
        places = data.draw(st.lists(st.sampled_from(["GPU", "GPU", "host"]), min_size=SIZE, max_size=SIZE), "memory")
        form = data.draw(st.sampled_from(("blocking", *FORMS)), "form")
        given = {
            "count": data.draw(st.sampled_from((1, 100, COUNT)), "count"),
            "in_place": data.draw(st.booleans(), "in place"),
            "starts": (data.draw(st.integers(0, 63), "send"), data.draw(st.integers(0, 63), "recv")),
        }
        kind = Call if places[RANK] == "GPU" else test_registered.Call
        call = kind(comm, primitive, algorithm, number, **given)
        expected, found = (
            Call(comm, primitive, algorithm, number, **given).reference(),
            call.run(kinds[places[RANK]], form),
        )
        np.testing.assert_array_equal(on_host(found), expected)


def test_collectives_in_flight(xp, ipc):
    """Several at once, which complete in another order, while other calls run."""
    calls = [Call(ipc, primitive, None, seed) for seed, primitive in enumerate([*SHARED, "allreduce"])]
    wheres = [memory(xp) for _ in calls]
    requests = [
        getattr(pycoll, f"i{call.primitive}")(*call.place(where), **call.given) for call, where in zip(calls, wheres)
    ]
    Call(ipc, "allgather", None).check(memory(xp))
    for call, request in reversed(list(zip(calls, requests))):
        np.testing.assert_array_equal(on_host(request.wait()), call.reference())


def test_persistent_calls_are_bound_once(xp, ipc, monkeypatch):
    call, where = Call(ipc, "alltoall", None), memory(xp)
    with pycoll.alltoall_init(*call.place(where), **call.given) as request, monkeypatch.context() as patch:
        for turn in range(3):
            call.place(where)
            request.Start()
            request.Wait()
            if turn == 0:
                patch.setattr(channel, "bind", None)
        result = on_host(where[1][: SIZE * COUNT])
    np.testing.assert_array_equal(result, call.reference())


def test_pending_work_of_nonblocking_calls_with_a_plan(xp, ipc):
    """They follow the stream that is current when they are called, even if it is not when they are completed."""
    call, where = Call(ipc, "allreduce", None), memory(xp)
    expected, stream = call.reference(), xp.cuda.Stream()
    xp.cuda.get_current_stream().synchronize()
    for _ in range(2):
        with stream:
            request = pycoll.iallreduce(*call.place(where), **call.given)
        np.testing.assert_array_equal(on_host(request.wait()), expected)


def test_blocks_of_different_lengths(xp, ipc):
    counts = [COUNT + rank for rank in range(SIZE)]
    send, recv = xp.asarray(np.full(counts[RANK], RANK, "f4")), xp.zeros(sum(counts), "f4")
    with pycoll.traffic() as sent:
        pycoll.allgatherv(send, [recv, counts], comm=ipc)
    np.testing.assert_array_equal(recv.get(), np.repeat(np.arange(SIZE, dtype="f4"), counts))
    assert sent.nbytes < 4 * COUNT


@pytest.mark.parametrize("op, dtype", [("avg", "f4"), ("avg", "c16"), ("prod", "c16"), ("max", "i8"), ("land", "?")])
def test_operations(xp, ipc, op, dtype):
    host = np.random.default_rng(RANK).integers(0, 3, 1000).astype(dtype)
    expected = pycoll.allreduce(host, op=op, comm=ipc)
    with pycoll.traffic() as sent:
        found = pycoll.allreduce(xp.asarray(host), op=op, comm=ipc)
    np.testing.assert_array_equal(found.get(), expected)
    assert sent.nbytes < 2000


def test_pairs(xp, ipc):
    """Values with indices, which several kernels store."""
    host = np.zeros(1000, np.dtype([("value", "f4"), ("index", "i4")], align=True))
    host["value"], host["index"] = np.random.default_rng(RANK).integers(0, 3, 1000), RANK
    comm, found, expected = pycoll.Comm(ipc), xp.zeros(8000, "u1"), np.zeros(8000, "u1")
    with pycoll.traffic() as sent:
        comm.Allreduce([xp.asarray(host.view("u1")), MPI.FLOAT_INT], [found, MPI.FLOAT_INT], MPI.MINLOC)
    assert sent.nbytes < 2000
    comm.Allreduce([host.view("u1"), MPI.FLOAT_INT], [expected, MPI.FLOAT_INT], MPI.MINLOC)
    np.testing.assert_array_equal(found.get(), expected)


def test_lists_and_gaps(xp, ipc):
    """Buffers that are packed before the call."""
    host = np.arange(4 * COUNT, dtype="f4").reshape(4, COUNT) + RANK
    expected = sum(np.arange(4 * COUNT, dtype="f4").reshape(4, COUNT) + rank for rank in range(SIZE))
    whole = xp.asarray(host)
    np.testing.assert_array_equal(pycoll.allreduce(whole[:, ::2], comm=ipc).get(), expected[:, ::2])
    arrays = [xp.asarray(host[0]), xp.asarray(host[1:])]
    pycoll.allreduce(arrays, comm=ipc)
    np.testing.assert_array_equal(arrays[0].get(), expected[0])
    np.testing.assert_array_equal(arrays[1].get(), expected[1:])


def test_few_launches(xp, ipc):
    """An all-reduce of 256 MiB takes tens of launches: here, the same numbers of segments of a shorter vector."""
    if is_real(xp):
        pytest.skip("counts the launches of the stand-in")
    settings.configure(device_segment=1 << 14)
    send, recv = xp.zeros(1 << 14, "f4"), xp.zeros(1 << 14, "f4")
    pycoll.allreduce(send, recv, comm=ipc)
    before = standin.launches()
    pycoll.allreduce(send, recv, comm=ipc)
    settings.configure(device_segment=None)
    # for each segment of the block of a rank, one for each other contribution; the last one stores all results
    assert standin.launches() - before == -(-4 // SIZE) * (SIZE - 1)


def test_no_rank_returns_while_another_one_reads_its_buffer(xp, ipc, monkeypatch):
    """The kernels of the last rank take longer; meanwhile the others would overwrite their buffers."""
    if is_real(xp):
        pytest.skip("needs the stand-in")
    call, where = Call(ipc, "allreduce", "ring"), memory(xp)
    expected, arguments = call.reference(), call.place(where)
    work = sharing_device.DeviceSharing.work

    def slowly(self, *arguments):
        deadline = time.monotonic() + 0.1
        own_stream(0).hold(lambda: time.monotonic() > deadline)
        yield from work(self, *arguments)

    if RANK == SIZE - 1:
        monkeypatch.setattr(sharing_device.DeviceSharing, "work", slowly)
    result = pycoll.allreduce(*arguments, **call.given)
    where[0].fill(-5)
    xp.cuda.get_current_stream().synchronize()
    np.testing.assert_array_equal(result.get(), expected)


def unshareable(xp, kind, count=SIZE * COUNT + 64):
    if is_real(xp):
        pool = xp.cuda.MemoryAsyncPool() if kind == "asynchronous" else xp.cuda.MemoryPool(xp.cuda.malloc_managed)
    else:
        pool = xp.cuda.MemoryAsyncPool() if kind == "asynchronous" else xp.cuda.ManagedPool()
    with xp.cuda.using_allocator(pool.malloc):
        return memory(xp, count)


@pytest.mark.parametrize("way", ["direct", "staged"], indirect=True)
@pytest.mark.parametrize("kind, reason", [("asynchronous", "not from cudaMalloc"), ("managed", "is managed")])
def test_memory_that_cannot_be_exported(xp, way, ipc, kind, reason):
    """If one rank has such memory, all use messages, in the calls where others access it."""
    good, bad = memory(xp), unshareable(xp, kind)
    for turn in range(SIZE + 1):
        where = bad if turn == RANK else good
        with warned(f"PYCOLL_CUDA_IPC is 1: .*{reason}") if turn == RANK else contextlib.nullcontext():
            Call(ipc, "allreduce", None, turn).check(where)
        with pycoll.traffic() as sent:
            Call(ipc, "allreduce", None, turn).run(where)
        assert (sent.nbytes < 4 * COUNT) == (turn == SIZE)
    # in a scatter, the others only access the buffer of the root
    where = good if RANK == test_registered.ROOT else bad
    run_without_messages(Call(ipc, "scatter", None), where)


def test_memory_that_cannot_be_opened(xp, ipc):
    """If one rank cannot open the memory of others, all use messages, and do not try again."""
    if is_real(xp):
        pytest.skip("needs the stand-in")
    standin.ipc.refuses = RANK == 0
    with warned("ipcOpenMemHandle failed" if RANK == 0 else "another rank cannot open"):
        Call(ipc, "allreduce", None).check(memory(xp))
    opens = standin.ipc.opens
    for seed in range(3):
        Call(ipc, "bcast", None, seed).check(memory(xp))
    assert standin.ipc.opens == opens


def test_allocations_are_opened_once(xp, ipc):
    if is_real(xp):
        pytest.skip("counts the calls of the stand-in")
    wheres, other = [memory(xp) for _ in range(2)], MPI.COMM_WORLD.Dup()
    for turn in range(6):
        Call(ipc if turn % 2 else other, "alltoall", None, turn).check(wheres[turn % 2])
        if turn == 1:
            opens = standin.ipc.opens
    assert standin.ipc.opens == opens
    assert len(standin.ipc.opened) <= 4 * (SIZE - 1)
    other.Free()


@pytest.mark.parametrize("changing", ["all", "one"])
def test_another_allocation_at_the_same_address(xp, ipc, changing):
    """Memory is freed and allocated again, so that an old mapping shows the old contents."""
    count = max(1 << 17, SIZE * COUNT + 64)  # too long to share an allocation with other arrays
    places, kept = set(), memory(xp, count)
    for turn in range(5):
        where = memory(xp, count) if changing == "all" or turn % SIZE == RANK else kept
        places.add(where[0].data.ptr)
        for primitive in ("allreduce", "bcast"):
            Call(ipc, primitive, None, turn).check(where)
        del where
        xp.get_default_memory_pool().free_all_blocks()
    if not is_real(xp):
        assert len(places) == (1 if changing == "all" else 2)
        assert len(standin.ipc.opened) <= 4 * (SIZE - 1)


def test_without_the_setting(xp, way):
    comm = MPI.COMM_WORLD.Dup()
    assert "PYCOLL_CUDA_IPC is not 1" in pycoll.explain("bcast", nbytes=LEAST, comm=comm).gpu
    Call(comm, "allreduce", None).check(memory(xp))
    comm.Free()


def test_explain(xp, ipc):
    """It says when kernels access the memory of other ranks, and why not."""
    given = {"comm": ipc, "nbytes": LEAST}
    assert "GPU memory of other ranks: accessed by kernels" in str(pycoll.explain("allreduce", **given))
    assert "accessed by kernels" in pycoll.explain("alltoallv", algorithm="naive", **given).gpu
    assert "there is no program for barrier" in pycoll.explain("barrier", comm=ipc, nbytes=0).gpu
    assert f"the least size is {LEAST} bytes" in pycoll.explain("bcast", comm=ipc, nbytes=LEAST - 1).gpu


def test_info(xp, ipc):
    """All ranks try to open the memory of the others."""
    assert info.ipc_outcome(ipc) == "yes"
    if not is_real(xp):
        standin.ipc.refuses = RANK == 0
        with warned("ipcOpenMemHandle failed" if RANK == 0 else "another rank cannot open"):
            assert info.ipc_outcome(ipc).startswith("no: ipcOpen" if RANK == 0 else "no: another rank")
