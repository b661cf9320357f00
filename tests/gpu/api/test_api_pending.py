"""Buffers whose contents are still being computed when the call is made, on a stream that is not the current one.

Receive buffers have pending work too: a fill, which must not overwrite the result.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.gpu.arguments.test_buffer_spec import Foreign
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi
LEFT, RIGHT = (RANK - 1) % SIZE, (RANK + 1) % SIZE
N = 6  # elements of a block
EVERYONE = range(SIZE)


class Pending:
    """An array known only by its interface, which names the stream that computes its contents."""

    def __init__(self, xp, count, dtype="int64"):
        self.xp, self.stream = xp, xp.cuda.Stream(non_blocking=True)
        with self.stream:  # work of the current stream on earlier memory at this address may be pending
            self.array = xp.empty(count, dtype)
        self.__cuda_array_interface__ = Foreign(self.array).__cuda_array_interface__ | {"stream": self.stream.ptr}

    def compute(self, values):
        with self.stream:
            self.array[...] = self.xp.asarray(np.full(self.array.shape, values, self.array.dtype))

    def get(self):
        self.stream.synchronize()
        return self.array.get()


def vector(rank, step, blocks=SIZE):
    return np.arange(blocks * N) + 100 * rank + 10_000 * step


def block(values, rank):
    return values[rank * N : (rank + 1) * N]


def total(step, ranks=EVERYONE):
    return sum(vector(rank, step) for rank in ranks)


def gathered(step):
    return np.concatenate([vector(rank, step, 1) for rank in EVERYONE])


def exchanged(step):
    return np.concatenate([block(vector(rank, step), RANK) for rank in EVERYONE])


COUNTS = [N] * SIZE
DISPLS = [N * rank for rank in EVERYONE]
# of each primitive: blocks to send, blocks to receive, what is received, whether specifications have counts;
# rooted ones have root 0, where all ranks have all buffers, which the others ignore
CASES = {
    "Allreduce": (SIZE, SIZE, total, False),
    "Reduce": (SIZE, SIZE, total, False),
    "Scan": (SIZE, SIZE, lambda step: total(step, range(RANK + 1)), False),
    "Reduce_scatter_block": (SIZE, 1, lambda step: block(total(step), RANK), False),
    "Allgather": (1, SIZE, gathered, False),
    "Gather": (1, SIZE, gathered, False),
    "Scatter": (SIZE, 1, lambda step: block(vector(0, step), RANK), False),
    "Alltoall": (SIZE, SIZE, exchanged, False),
    "Allgatherv": (1, SIZE, gathered, True),
    "Gatherv": (1, SIZE, gathered, True),
    "Scatterv": (SIZE, 1, lambda step: block(vector(0, step), RANK), True),
    "Alltoallv": (SIZE, SIZE, exchanged, True),
}
FORMS = ["blocking", "nonblocking", "persistent"]
STEPS = range(3)


def started(form, comm, name, *arguments):
    """Yield once per step, then run the collective on these buffers."""
    if form == "persistent":
        request = getattr(comm, f"{name}_init")(*arguments)
        for step in STEPS:
            yield step
            request.Start()
            request.Wait()
        yield None
        request.Free()
        return
    for step in STEPS:
        yield step
        if form == "blocking":
            getattr(comm, name)(*arguments)
        else:
            getattr(comm, f"I{name.lower()}")(*arguments).Wait()
    yield None


def run(form, comm, name, arguments, compute, check):
    steps = started(form, comm, name, *arguments)
    before = None
    for step in steps:
        if before is not None:
            check(before)
        if step is not None:
            compute(step)
        before = step


def listed(pending, blocks, counted):
    if not counted or blocks == 1:
        return [pending, MPI.INT64_T]
    return [pending, COUNTS, DISPLS, MPI.INT64_T]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_buffers_with_a_datatype(xp, way, name, form):
    comm, (gives, gets, expected, counted) = pycoll.Comm(MPI.COMM_WORLD), CASES[name]
    send, recv = Pending(xp, gives * N), Pending(xp, gets * N)
    receives = RANK == 0 or name not in ("Reduce", "Gather", "Gatherv")

    def compute(step):
        send.compute(vector(RANK, step, gives))
        recv.compute(-1)

    def check(step):
        np.testing.assert_array_equal(recv.get(), expected(step) if receives else np.full(gets * N, -1))
        np.testing.assert_array_equal(send.get(), vector(RANK, step, gives))

    arguments = listed(send, gives, counted), listed(recv, gets, counted)
    run(form, comm, name, arguments, compute, check)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["Allreduce", "Scan", "Alltoall", "Allgather", "Allgatherv", "Bcast"])
def test_in_place(xp, way, name, form):
    comm, inside = pycoll.Comm(MPI.COMM_WORLD), Pending(xp, SIZE * N)
    expected = CASES[name][2] if name in CASES else lambda step: vector(0, step)
    gathers = name.startswith("Allgather")

    def compute(step):
        own = vector(RANK, step, 1) if gathers else vector(RANK, step)
        values = np.full(SIZE * N, -1)
        values[RANK * N : (RANK + 1) * N] = own[:N]
        inside.compute(values if gathers else own)

    def check(step):
        np.testing.assert_array_equal(inside.get(), expected(step))

    spec = listed(inside, SIZE, name == "Allgatherv")
    run(form, comm, name, [spec] if name == "Bcast" else [MPI.IN_PLACE, spec], compute, check)


def gaps():
    """A datatype of every second number of a block."""
    vector = MPI.INT64_T.Create_vector(N // 2, 1, 2)
    column = vector.Create_resized(0, 8 * N).Commit()
    vector.Free()
    return column


@pytest.mark.parametrize("form", FORMS)
def test_datatypes_with_gaps(xp, way, form):
    comm, column = pycoll.Comm(MPI.COMM_WORLD), gaps()
    send, recv = Pending(xp, N), Pending(xp, SIZE * N)

    def compute(step):
        send.compute(vector(RANK, step, 1))
        recv.compute(-1)

    def check(step):
        expected = np.full(SIZE * N, -1)
        expected[::2] = gathered(step)[::2]
        np.testing.assert_array_equal(recv.get(), expected)

    run(form, comm, "Allgather", ([send, 1, column], [recv, 1, column]), compute, check)
    column.Free()


FUNCTIONS = SimpleNamespace(
    **{name: getattr(pycoll, name) for name in ("allreduce", "bcast", "allreduce_init", "bcast_init")},
    Iallreduce=pycoll.iallreduce,
    Ibcast=pycoll.ibcast,
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["allreduce", "bcast"])
def test_arrays_inside_lists(xp, way, name, form):
    arrays = [Pending(xp, N), Pending(xp, SIZE * N)]

    def compute(step):
        for array in arrays:
            array.compute(vector(RANK, step, array.array.size // N))

    def check(step):
        for array in arrays:
            blocks = array.array.size // N
            ranks = EVERYONE if name == "allreduce" else [0]
            np.testing.assert_array_equal(array.get(), sum(vector(rank, step, blocks) for rank in ranks))

    run(form, FUNCTIONS, name, [arrays], compute, check)


def exchange_by_send(comm, out, back, tag):
    request = comm.Isend(out, RIGHT, tag)
    comm.Recv(back, LEFT, tag)
    request.Wait()


def exchange_by_receive(comm, out, back, tag):
    request = comm.Irecv(back, LEFT, tag)
    comm.Send(out, RIGHT, tag)
    request.Wait()


def exchange_at_once(comm, out, back, tag):
    comm.Sendrecv(out, RIGHT, tag, back, LEFT, tag)


@pytest.mark.parametrize("exchange", [exchange_by_send, exchange_by_receive, exchange_at_once])
@pytest.mark.parametrize("current", [True, False], ids=["current", "named"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "gaps"])
def test_messages(xp, way, strict_mpi, exchange, current, dense):
    """Messages of a communicator, on the current stream or on a named one, with and without gaps."""
    comm, column = pycoll.Comm(MPI.COMM_WORLD), gaps()
    for step in STEPS:
        out, back = Pending(xp, 2 * N), Pending(xp, 2 * N)
        out.compute(vector(RANK, step, 2))
        back.compute(-1)
        given = [out, back]
        if current:
            given = [out.array, back.array]
            for pending in (out, back):  # everything follows the current stream
                xp.cuda.get_current_stream().wait_event(pending.stream.record())
        exchange(comm, *([buffer, *([2, column] if not dense else [MPI.INT64_T])] for buffer in given), step)
        expected = vector(LEFT, step, 2)
        if not dense:
            expected[1::2] = -1
        np.testing.assert_array_equal(back.get(), expected)
    column.Free()


def test_a_receive_follows_the_stream_of_its_call(xp, way):
    """Work on the buffer that was pending when the receive was started does not overwrite it."""
    stream, back = xp.cuda.Stream(non_blocking=True), xp.empty(N)
    with stream:
        back[...] = xp.asarray(np.full(N, -1.0))
        request = pycoll.irecv(back, LEFT)
    pycoll.send(np.full(N, float(RANK)), RIGHT)
    request.Wait()
    stream.synchronize()
    np.testing.assert_array_equal(back.get(), np.full(N, float(LEFT)))
