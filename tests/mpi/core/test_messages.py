"""Messages of the compiled core: results of all algorithms and forms, for lengths around that of an entry."""

import contextlib
import signal
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll import core
from pycoll.arguments.ops import kernels
from pycoll.base import settings
from pycoll.base.errors import TruncatedMessage
from pycoll.runtime import core_runs
from pycoll.runtime.attach import attach
from pycoll.schedule.moves import Send
from pycoll.schedule.registry import PRIMITIVES, algorithms_of, find
from tests.mpi.native import RANK, SIZE, WORLD, assert_same, inputs, native

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="there are no messages")]

ENTRY = 1 << 14  # bytes of an entry in a mailbox
ENTRIES = 4
PAGE = 1 << 12
ALL = [
    (name, algorithm)
    for name, primitive in PRIMITIVES.items()
    if not primitive.varies and name not in ("barrier", "exscan")
    for algorithm in algorithms_of(name)
]
AROUND = sorted({ENTRY * entries + more for entries in (0, 1, 2, ENTRIES) for more in (-8, 0, 8)} - {-8})
LONG = ENTRY * (2 * ENTRIES + 1)


@pytest.fixture(scope="module", params=["memory of other ranks", "entries", "MPI"])
def comm(request):
    """A communicator whose long messages are copied from other ranks, or travel in entries; or all are those of MPI."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "entries":
            patch.setattr(core, "copied", lambda process, address: None)
        elif request.param == "MPI":
            patch.setattr(settings, "SHARED_MEMORY", False)
        comm = WORLD.Dup()
        assert attach(comm).mailboxes.near == (request.param != "MPI")
    yield comm
    comm.Free()


def call(comm, form, primitive, algorithm, send, root):
    """The result of a collective, in one of the three forms."""
    given = {"comm": comm, "algorithm": algorithm} | ({"root": root} if PRIMITIVES[primitive].rooted else {})
    if primitive == "scatter":
        given["recvbuf"] = np.empty(send.size // SIZE, send.dtype)
    if form == "blocking":
        return getattr(pycoll, primitive)(send, **given)
    if form == "nonblocking":
        return getattr(pycoll, f"i{primitive}")(send, **given).wait()
    with getattr(pycoll, f"{primitive}_init")(send, **given) as request:
        request.Start()
        return request.wait()


def check(comm, form, primitive, algorithm, nbytes, root=0):
    send = inputs(primitive, nbytes // 8, "int64", seed=nbytes)
    op = "sum" if PRIMITIVES[primitive].reduces else None
    theirs = native(primitive, send.copy(), op, root)
    ours = call(comm, form, primitive, algorithm, send.copy(), root)
    if theirs is not None:
        assert_same(ours, theirs, primitive, send, op)


@pytest.mark.parametrize("primitive, algorithm", ALL)
def test_lengths_around_the_limits(comm, primitive, algorithm):
    for nbytes in AROUND:
        check(comm, "blocking", primitive, algorithm, nbytes, root=nbytes % SIZE)


@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
@pytest.mark.parametrize("primitive", sorted({name for name, _ in ALL}))
def test_other_forms(comm, primitive, form):
    for nbytes in AROUND:
        check(comm, form, primitive, None, nbytes, root=nbytes % SIZE)


@given(st.sampled_from(ALL), st.integers(0, LONG), st.integers(0, SIZE - 1))
def test_drawn_lengths(together, comm, pair, nbytes, root):
    together(check, comm, "blocking", *pair, nbytes // 8 * 8, root)


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_messages_are_counted(comm, form):
    for primitive, algorithm in ("allreduce", "recursive_doubling"), ("bcast", "naive"):
        for nbytes in AROUND:
            with pycoll.traffic() as sent:
                check(comm, form, primitive, algorithm, nbytes)
            schedule = find(primitive, algorithm).schedule(RANK, SIZE, 0, 1, None)
            sends = sum(isinstance(move, Send) for moves in schedule for move in moves) if nbytes else 0
            assert (sent.messages, sent.nbytes) == (sends, sends * nbytes)


@pytest.mark.parametrize("nbytes", [16, ENTRY + 8, 2 * ENTRY + 8, LONG])
@pytest.mark.parametrize("early", [False, True])
def test_a_receive_buffer_that_is_too_short(comm, nbytes, early):
    near = attach(comm).mailboxes.near
    if nbytes == LONG and not near:
        pytest.skip("Open MPI lets the sender of such a message wait forever")
    other = WORLD.Dup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "SHARED_MEMORY", near)
        attach(other)
    if RANK and early:  # the message comes before its receive starts
        WORLD.Barrier()
    with pytest.raises(TruncatedMessage) if RANK == 1 else contextlib.nullcontext():
        request = pycoll.ibcast(np.ones(nbytes - 8 * (RANK == 1), np.uint8), comm=other, algorithm="naive")
        if early and not RANK:
            WORLD.Barrier()
        request.wait()
    if RANK == 1:
        with pytest.raises(pycoll.CollectiveInterrupted):
            pycoll.barrier(comm=other)


@pytest.mark.parametrize("nbytes", [8, ENTRY + 8, 2 * ENTRY + 8, LONG])
def test_collectives_that_ranks_wait_for_in_different_orders(comm, nbytes):
    """Messages come before their receive starts, and many of them at once."""
    arrays = [np.full(nbytes // 8, RANK + 10 * number) for number in range(12)]
    requests = [pycoll.ibcast(one, number % SIZE, comm=comm) for number, one in enumerate(arrays)]
    for number in range(len(requests))[:: 1 if RANK % 2 else -1]:
        requests[number].wait()
        assert (arrays[number] == number % SIZE + 10 * number).all()


def test_blocking_calls_while_others_are_in_flight(comm):
    """One rank runs the call as a task, and others do not."""
    other = WORLD.Dup()
    attach(other)
    request = pycoll.iallreduce(np.ones(5), comm=other) if RANK == 0 else None
    for nbytes in AROUND:
        check(comm, "blocking", "allreduce", "recursive_doubling", nbytes)
    request = request or pycoll.iallreduce(np.ones(5), comm=other)
    np.testing.assert_array_equal(request.wait(), SIZE)
    other.Free()


def test_a_progress_thread(comm):
    with pycoll.progress_thread():
        for form in "blocking", "nonblocking", "persistent":
            check(comm, form, "allgather", None, ENTRY + 8)


@pytest.mark.parametrize("algorithm", [None, "ring"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i2"])
def test_arrays_that_are_not_aligned(comm, dtype, algorithm):
    memory = np.zeros(8 * 100 * 16 + 1, np.uint8)
    for op in "sum", "prod":
        right = native("allreduce", np.full(100, RANK + 1, dtype), op)
        for start in 0, 1, 1:  # the first call leaves a plan
            send = memory[start:].view(np.uint8)[: 100 * np.dtype(dtype).itemsize].view(dtype)
            send[:] = RANK + 1
            np.testing.assert_allclose(pycoll.allreduce(send, op=op, comm=comm, algorithm=algorithm), right)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "in flight"])
def test_a_signal_while_python_combines(comm, monkeypatch, form):
    """The operands are combined once, and the exception of the handler is raised in the end."""

    def handler(*_):
        raise Interrupted

    def add(left, right, out):
        np.add(left, right, out)
        if signals:
            signal.raise_signal(signals.pop())

    monkeypatch.setitem(kernels, (np.add, np.dtype("f8")), lambda *operands: partial(add, *operands))
    core_runs.known_code.cache_clear()
    before, signals = signal.signal(signal.SIGUSR1, handler), []
    values, result = np.full(50, RANK + 1.0), np.zeros(50)
    attach(WORLD)
    other = pycoll.ibarrier(comm=WORLD) if form == "in flight" else None
    try:
        for turn in range(3):
            result[:] = -1
            signals[:] = [signal.SIGUSR1] if RANK == 0 and turn else []
            with pytest.raises(Interrupted) if signals else contextlib.nullcontext():
                if form == "nonblocking":
                    pycoll.iallreduce(values, result, comm=comm, algorithm="ring").wait()
                else:
                    pycoll.allreduce(values, result, comm=comm, algorithm="ring")
            assert (result == SIZE * (SIZE + 1) / 2).all()
    finally:
        signal.signal(signal.SIGUSR1, before)
        core_runs.known_code.cache_clear()
        attach(comm).forget_plans()
    if other:
        other.wait()


def bytes_at(shift, count):
    """An array of bytes that begins so many bytes behind the beginning of a page."""
    memory = np.empty(count + 2 * PAGE, np.uint8)
    start = (shift - memory.ctypes.data) % PAGE
    return memory[start : start + count]


@pytest.mark.parametrize("count", [2047, 2049, 4096, 5003, ENTRY + 1, 70_001, (1 << 22) + 77])
def test_blocks_at_all_places_in_their_pages(comm, count):
    """How a block is copied depends on its length, and on where it and its copy begin."""
    content = np.random.default_rng(count).integers(0, 256, (SIZE, count), np.uint8)
    for shift, other in (0, 0), (0, 16), (16, 0), (1, 32), (40, 48), (4090, 5), (77, 77):
        send, recv = bytes_at(shift, count), bytes_at(other, count * SIZE)
        send[:] = content[RANK]
        for algorithm in (None, "ring", "naive"):
            recv[:] = 0
            pycoll.allgather(send, recv, algorithm=algorithm, comm=comm)
            np.testing.assert_array_equal(recv.reshape(SIZE, count), content)
            moved = bytes_at(other if RANK else shift, count)
            moved[:] = content[RANK]
            pycoll.bcast(moved, algorithm=algorithm, comm=comm)
            np.testing.assert_array_equal(moved, content[0])
