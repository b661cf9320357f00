"""Calls of `pycoll.Comm` that name no algorithm: results, agreement of ranks, checks in every call, errors."""

import gc
import os
import random
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.runtime.attach import attach
from pycoll.runtime.front import METHODS
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="needs another rank")]
N = 24
ROOT = SIZE - 1


@pytest.fixture
def comm():
    made = pycoll.Comm(WORLD).Dup()
    yield made
    made.Free()


def forms(array, datatype=MPI.DOUBLE):
    """One buffer in all forms that mean the same."""
    return [
        array,
        [array, datatype],
        (array, array.size, datatype),
        [array, array.size, datatype],
        [array, (array.size, 0), datatype],
        [np.concatenate([array, np.zeros(3)]), array.size, datatype],
        np.concatenate([array, array])[: array.size],
        memoryview(array),
    ]


def reads(name):
    """How a method reads the forms of a send buffer of N elements, and the expected values."""
    numbers = np.arange(float(N))
    values = numbers + RANK
    total = numbers * SIZE + SIZE * (SIZE - 1) / 2
    upto = numbers * (RANK + 1) + RANK * (RANK + 1) / 2
    return {"Allreduce": (values, total), "Scan": (values, upto), "Allgather": (values, None)}[name]


@pytest.mark.parametrize("name", ["Allreduce", "Scan"])
def test_ranks_may_write_their_arguments_in_different_forms(comm, name):
    values, expected = reads(name)
    for step in range(3 * SIZE):
        sent = forms(values)[(step + 3 * RANK) % 8]
        result = np.zeros(N)
        received = forms(result)[(step // 2 + RANK) % 4]
        getattr(comm, name)(sent, received)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("op", [MPI.SUM, MPI.MAX, MPI.PROD, MPI.BAND, MPI.LXOR, MPI.MINLOC, "avg"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?", "c16", "f2", "g", "i8,i4"])
def test_operations_and_dtypes_give_what_named_algorithms_give(comm, op, dtype):
    numbers = np.random.default_rng(RANK).integers(0, 9, 7)
    send = np.zeros(7, np.dtype(dtype, align="," in dtype))
    if send.dtype.names:
        send["f0"], send["f1"] = numbers, RANK
    else:
        send[:] = numbers
    for _ in range(3):
        outcomes = []
        for name in (None, "naive"):
            result = np.zeros_like(send)
            try:
                comm.Allreduce(send, result, op, algorithm=name)
            except TypeError as error:
                result = str(error)
            outcomes.append(result)
        np.testing.assert_array_equal(*outcomes)


def test_a_user_defined_operation(comm):
    own = MPI.Op.Create(lambda a, b, _: np.frombuffer(b).__iadd__(np.frombuffer(a)) is None, commute=True)
    for _ in range(3):
        result = np.zeros(4)
        comm.Allreduce(np.ones(4), result, own)
        assert result.tolist() == [SIZE] * 4
        comm.Allreduce(np.ones(4), result)
        assert result.tolist() == [SIZE] * 4
    own.Free()


WRONG = [
    ("Bcast", lambda: [[np.zeros(8, "i4"), 9, MPI.INT]]),
    ("Bcast", lambda: [np.zeros((4, 4))[:, 1]]),
    ("Allreduce", lambda: [np.zeros(3), np.zeros(4)]),
    ("Allreduce", lambda: [np.zeros(3), np.zeros(3, "f4")]),
    ("Allreduce", lambda: [[np.zeros(8, "i4"), 9, MPI.INT], np.zeros(9, "i4")]),
    ("Allreduce", lambda: [np.zeros(4), np.broadcast_to(np.zeros(1), 4)]),
    ("Allgatherv", lambda: [np.zeros(2), [np.zeros(2 * SIZE - 1), [2] * SIZE]]),
    ("Alltoallv", lambda: [[np.zeros(2 * SIZE), [2] * SIZE], [np.zeros(2 * SIZE - 1), [2] * SIZE]]),
    ("Alltoallv", lambda: [[np.zeros(2 * SIZE), ([2] * SIZE, [3 * i for i in range(SIZE)])], np.zeros(2 * SIZE)]),
    ("Reduce_scatter", lambda: [np.zeros(2 * SIZE), np.zeros(3), [3] * SIZE]),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_arguments_raise_an_error_in_every_call(comm, name, arguments):
    """Also after calls of the same kind that are right; nothing is sent."""
    for number in range(4):
        if name == "Bcast":
            comm.Bcast([np.zeros(9, "i4"), 9, MPI.INT])
        comm.Allreduce(np.zeros(3), np.zeros(3))
        with pytest.raises((ValueError, TypeError)):
            getattr(comm, name)(*arguments())
        comm.Allreduce(np.full(3, number), total := np.zeros(3, int))
        assert total[0] == number * SIZE


@pytest.mark.parametrize("name", ["Alltoall", "Allgather", "Reduce_scatter_block", "Gather", "Scatter"])
def test_counts_are_those_of_blocks(comm, name):
    """Calls with as many bytes in a buffer are of other kinds if they give no count."""
    takes, gives, n = (
        name in ("Alltoall", "Reduce_scatter_block", "Scatter"),
        name in ("Alltoall", "Allgather", "Gather"),
        2 * SIZE,
    )
    op = [MPI.SUM] if name == "Reduce_scatter_block" else []

    def used(array, blocks, counted):
        part = array[: n * blocks // (1 if counted else SIZE)]
        return [part, n if blocks > 1 else part.size, MPI.INT64_T] if counted else part

    for counted in (True, False, True, False):
        for send_in_place in (False, True) if name in ("Alltoall", "Allgather", "Reduce_scatter_block") else (False,):
            outcomes = []
            for on in (WORLD, comm):
                send, recv = np.arange(n * SIZE) + 1000 * RANK, np.full(n * SIZE, RANK)
                given = MPI.IN_PLACE if send_in_place else used(send, SIZE if takes else 1, counted)
                blocks = SIZE if gives or (send_in_place and takes) else 1
                getattr(on, name)(given, used(recv, blocks, counted), *op)
                outcomes.append(recv)
            np.testing.assert_array_equal(*outcomes)


@pytest.mark.parametrize("datatype", [MPI.INT64_T, MPI.INT64_T.Dup(), MPI.INT64_T.Create_contiguous(1).Commit()])
def test_displacements_that_change(comm, datatype):
    """Also of datatypes that the front does not know; displacements behind the end are refused in every call."""
    for turn in range(4):
        everything = np.full(40, -1)
        displs = [2 * turn + 3 * rank for rank in range(SIZE)]
        for name in "Allgatherv", "Iallgatherv":
            request = getattr(comm, name)([np.full(2, RANK), 2, datatype], [everything, [2] * SIZE, displs, datatype])
            if request:
                request.Wait()
            for rank, displ in enumerate(displs):
                assert everything[displ : displ + 2].tolist() == [rank] * 2
            assert (everything == -1).sum() == 40 - 2 * SIZE
            with pytest.raises(ValueError):
                comm.Allgatherv([np.zeros(2), 2, datatype], [everything, [2] * SIZE, [10**6] * SIZE, datatype])


@pytest.mark.parametrize("root", [2**40, -1, SIZE, 1.0, "0"])
def test_wrong_roots_and_counts_after_right_ones(comm, root):
    for _ in range(3):
        comm.Bcast(np.zeros(4), 0)
        comm.Allgatherv(np.zeros(2), [np.zeros(2 * SIZE), [2] * SIZE])
        with pytest.raises((ValueError, TypeError, MPI.Exception)) as first:
            comm.Bcast(np.zeros(4), root)
        assert not isinstance(first.value, OverflowError)
        with pytest.raises(ValueError):
            comm.Bcast([np.zeros(4), 2**70, MPI.DOUBLE])
        with pytest.raises(TypeError):
            comm.Allgatherv(np.zeros(2), [np.zeros(2 * SIZE), [2.7] * SIZE])


def test_a_root_that_runs_ahead_of_a_rank_that_has_made_no_call():
    for turn in range(8):
        comm = pycoll.Comm(WORLD).Dup()
        if RANK == 0:
            time.sleep(0.05)
        for number in range(40):
            values = np.full(16, number if RANK == SIZE - 1 else -1)
            comm.Bcast(values, SIZE - 1)
            assert (values == number).all(), (turn, number)
        comm.Free()


@pytest.mark.parametrize("turns", [1 << 31, 1 << 32])
def test_ranks_that_publish_nothing_for_billions_of_turns(comm, turns):
    """Numbers of turns wrap around; the turns in which nothing special happens are left out here."""
    slots = attach(comm).slots
    small, large = np.zeros(4), np.zeros(40_000)
    for number in (1, 2):
        for values in (small, large):
            comm.Allreduce(np.full_like(values, number), values)
            assert (values == number * SIZE).all()
        for later in range(1 << 30, turns + 1, 1 << 30):
            WORLD.Barrier()
            slots.turn = slots.left = ((slots.turn & -(1 << 30)) + (1 << 30) - 8) % (1 << 32)
            for _ in range(16):
                comm.Bcast(values := np.full(2, later if RANK == 0 else 0))
                assert (values == later).all()
        for values in (small, large):
            if RANK:
                time.sleep(0.05)
            comm.Allreduce(np.full_like(values, -number), values)
            assert (values == -number * SIZE).all()


def test_buffers_that_overlap_are_refused_in_every_call(comm):
    memory = np.arange(40.0)
    for shift in (0, 8, 1, 39):
        for _ in range(3):
            comm.Allreduce(memory[:8], memory[20:28])
            comm.Allgather(np.zeros(2), np.zeros(2 * SIZE))
        if 0 < shift < 8:
            with pytest.raises(ValueError, match="overlap"):
                comm.Allreduce(memory[:8], memory[shift : shift + 8])


def test_a_freed_communicator_raises_an_error():
    comm = pycoll.Comm(WORLD).Dup()
    for _ in range(3):
        comm.Allreduce(np.ones(2), np.zeros(2))
    comm.Free()
    for _ in range(2):
        with pytest.raises((TypeError, MPI.Exception, ValueError)):
            comm.Allreduce(np.ones(2), np.zeros(2))


def test_choices_are_followed(comm):
    send, recv = np.ones(300), np.zeros(300)
    for name in (None, "ring", "naive", None):
        if name:
            comm.algorithm["Allreduce"] = name
        elif comm.algorithm:
            del comm.algorithm["Allreduce"]
        for _ in range(3):
            with pycoll.traffic() as sent:
                comm.Allreduce(send, recv)
            assert (sent.messages > 0) == (name == "ring" or (name == "naive")), name
            comm.Allreduce(send, recv)
    assert "shared" in str(pycoll.explain("allreduce", nbytes=2400, comm=comm)) or attach(comm).slots is None


def test_collectives_in_flight_go_on(comm):
    other = pycoll.Comm(WORLD).Dup()
    send, large = np.ones(1 << 15), np.zeros(1 << 15)
    for _ in range(3):
        comm.Allreduce(np.ones(1), np.zeros(1))
        request = other.Iallreduce(send, large, algorithm="ring")
        if RANK == 0:
            comm.Barrier()
            request.Wait()
        else:
            request.Wait()
            comm.Barrier()
        assert (large == SIZE).all()
    other.Free()


def test_messages_that_other_ranks_wait_for_are_sent(comm):
    """A rank in shared memory lets MPI progress: here a long message, which MPI sends in several steps."""
    comm.Barrier()
    long = np.full(1 << 20, 1.0)
    if RANK == 0:
        requests = [WORLD.Isend(long, rank) for rank in range(1, SIZE)]
        comm.Barrier()
        MPI.Request.Waitall(requests)
    else:
        got = np.zeros_like(long)
        WORLD.Recv(got, 0)
        comm.Barrier()
        assert (got == 1).all()


def test_many_communicators_leave_nothing_behind(comm):
    def opened():
        return len(os.listdir("/proc/self/fd")), sum("pycoll" in line for line in open("/proc/self/maps"))

    def use():
        made = [comm.Split(0, RANK) for _ in range(4)]
        for one in made:
            result = np.zeros(9000)
            one.Allreduce(np.ones(9000), result)
            assert result[-1] == SIZE
        for one in made:
            one.Free()
        comm.Barrier()  # the first rank lends their memory again only when all have left it

    use()
    gc.collect()  # what earlier tests have left
    before = opened()
    for _ in range(5):
        use()
    gc.collect()
    assert opened() == before


def test_random_calls_beside_mpi(comm):
    """Each rank writes its arguments in its own form; kinds and sizes are the same on all ranks."""
    numbers, own = random.Random(7), random.Random(RANK)
    for _ in range(400):
        count = numbers.choice([0, 1, 3, 17, 500, 1025, 8192, 20000, 70000])
        root = numbers.randrange(SIZE)
        dtype = numbers.choice(["f4", "f8", "i4"])
        datatype = MPI.Datatype.fromcode(dtype)
        values = np.random.default_rng(RANK).integers(0, 50, count * SIZE).astype(dtype)
        part = values[:count].copy()
        in_place = numbers.random() < 0.25

        def form(array, datatype=datatype):
            return own.choice([array, [array, datatype], (array, datatype)])

        def call(name, result, *arguments, on=comm, in_place=in_place):
            if on is comm:
                arguments = [form(one) if isinstance(one, np.ndarray) else one for one in arguments]
            getattr(on, name)(*arguments)
            return result

        name = numbers.choice(METHODS)
        outcomes = []
        for on in (comm, WORLD):
            result = np.full(count * SIZE if name in ("Gather", "Allgather", "Alltoall") else count, 7, dtype)
            counts = [count + rank for rank in range(SIZE)]
            varying = np.full(count + RANK, RANK, dtype)
            here = RANK == root
            if name in ("Allreduce", "Scan"):
                if in_place:
                    result = part.copy()
                call(name, result, MPI.IN_PLACE if in_place else part, result, on=on)
            elif name == "Exscan":
                call(name, result, part, result, on=on)
                result = result if RANK else part
            elif name == "Reduce":
                result = part.copy() if in_place else result
                call(
                    name,
                    result,
                    MPI.IN_PLACE if in_place and here else part,
                    result if here else None,
                    MPI.SUM,
                    root,
                    on=on,
                )
                result = result if here else part
            elif name == "Bcast":
                result = part.copy()
                call(name, result, result, root, on=on)
            elif name == "Scatter":
                call(name, result, values if here else None, result, root, on=on)
            elif name == "Gather":
                call(name, result, part, result if here else None, root, on=on)
            elif name == "Gatherv":
                result = np.full(sum(counts), 7, dtype)
                on.Gatherv(varying, [result, counts, datatype] if here else None, root)
            elif name == "Allgather":
                if in_place:
                    result = values.copy()
                call(name, result, MPI.IN_PLACE if in_place else part, result, on=on)
            elif name == "Allgatherv":
                result = np.full(sum(counts), 7, dtype)
                on.Allgatherv(varying, [result, counts, datatype])
            elif name == "Alltoall":
                result = values.copy() if in_place else result
                call(name, result, MPI.IN_PLACE if in_place else values, result, on=on)
            elif name == "Reduce_scatter_block":
                call(name, result, values, result, on=on)
            elif name == "Reduce_scatter":
                whole = np.arange(sum(counts)).astype(dtype)
                result = np.zeros(counts[RANK], dtype)
                on.Reduce_scatter(whole, result, counts)
            elif name in ("Alltoallv", "Alltoallw", "Scatterv"):
                result = np.zeros(0)
            else:
                on.Barrier()
            outcomes.append(result)
        np.testing.assert_array_equal(*outcomes, err_msg=f"{name} of {count}")
