"""Buffers in GPU memory: other packages, mixed memory, blocks of different lengths, mpi4py methods, messages."""

import gc
import re

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.runtime.gpu import cuda_aware
from tests.gpu.api.test_collectives import produced
from tests.gpu.standin import forget
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi
LEFT, RIGHT = (RANK - 1) % SIZE, (RANK + 1) % SIZE


class Foreign:
    """An array of another package, known only by its interface."""

    def __init__(self, array, read_only=False):
        self.array = array
        interface = dict(array.__cuda_array_interface__)
        interface["data"] = interface["data"][0], read_only
        self.__cuda_array_interface__ = interface


def test_arrays_of_other_packages(xp, way):
    send, recv = Foreign(produced(xp, np.arange(9.0)), read_only=True), Foreign(xp.empty(9))
    assert pycoll.allreduce(send, recv) is recv
    np.testing.assert_array_equal(recv.array.get(), np.arange(9.0) * SIZE)
    result = pycoll.allgather(send)
    np.testing.assert_array_equal(result.get(), np.tile(np.arange(9.0), (SIZE, 1)))
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(MPI.IN_PLACE, send)
    assert pycoll.allreduce(Foreign(recv.array), recv) is recv, "in place"
    np.testing.assert_array_equal(recv.array.get(), np.arange(9.0) * SIZE**2)
    blocks = produced(xp, np.arange(2.0 * SIZE) + 100 * RANK)
    pycoll.alltoall(Foreign(blocks), blocks)
    expected = [100 * rank + 2 * RANK + number for rank in range(SIZE) for number in range(2)]
    assert blocks.get().tolist() == expected
    with pytest.raises(ValueError, match="overlap in memory"):
        pycoll.allreduce(Foreign(recv.array[1:]), Foreign(recv.array[:-1]))


def test_the_stream_that_an_array_names(xp, way):
    """An array may name the stream on which its contents are ready, as in Numba; it need not be the current one."""
    stream, array = xp.cuda.Stream(non_blocking=True), xp.empty(500)
    send = Foreign(array)
    send.__cuda_array_interface__["stream"] = stream.ptr
    with pycoll.allreduce_init(send) as persistent:
        for step in range(3):
            with stream:
                array[...] = xp.asarray(np.full(500, float(step)))
            persistent.Start()
            np.testing.assert_array_equal(persistent.wait().get(), np.full(500, float(step) * SIZE))
        persistent.Start()
    with stream:
        array[...] = xp.asarray(np.full(500, 7.0))
    np.testing.assert_array_equal(pycoll.allreduce(send).get(), np.full(500, 7.0 * SIZE))


def test_gpu_and_host_in_one_call(xp, way):
    host, device = np.arange(50.0) + RANK, xp.empty(50)
    expected = np.arange(50.0) * SIZE + sum(range(SIZE))
    assert pycoll.allreduce(host, device) is device
    np.testing.assert_array_equal(device.get(), expected)
    other = np.zeros(50)
    pycoll.allreduce(produced(xp, host), other)
    np.testing.assert_array_equal(other, expected)


def test_gpu_and_host_on_different_ranks(xp, way):
    """Messages do not depend on whether buffers are in GPU or host memory."""
    host = np.arange(3000.0) + RANK
    for algorithm in ("ring", "recursive_doubling", "tree"):
        mine = produced(xp, host) if RANK % 2 else host.copy()
        result = pycoll.allreduce(mine, algorithm=algorithm)
        result = result.get() if RANK % 2 else result
        np.testing.assert_array_equal(result, np.arange(3000.0) * SIZE + sum(range(SIZE)))
    buf = produced(xp, host) if RANK % 2 else host.copy()
    pycoll.bcast(buf)
    np.testing.assert_array_equal(buf.get() if RANK % 2 else buf, np.arange(3000.0))


def test_comparing_arguments_first(xp, way, monkeypatch):
    monkeypatch.setattr(settings, "CHECK", True)
    mine = produced(xp, np.arange(10.0) + RANK)
    np.testing.assert_array_equal(pycoll.allreduce(mine).get(), np.arange(10.0) * SIZE + sum(range(SIZE)))
    request = pycoll.iallreduce(mine)
    np.testing.assert_array_equal(request.wait().get(), np.arange(10.0) * SIZE + sum(range(SIZE)))
    if SIZE > 1:
        with pytest.raises((ValueError, TypeError), match=r"different memories|wrong arguments"):
            pycoll.allreduce([mine, np.zeros(3)] if RANK == 0 else [mine, produced(xp, np.zeros(3))])


@pytest.mark.parametrize("length", [lambda rank: rank + 1, lambda rank: 40 * (rank % 2), lambda rank: 0])
def test_blocks_of_different_lengths(xp, way, length):
    counts, mine = [length(rank) for rank in range(SIZE)], length(RANK)
    send = produced(xp, np.full(mine, RANK))
    theirs = np.repeat(np.arange(SIZE), counts)
    for algorithm in pycoll.algorithms("allgatherv"):
        np.testing.assert_array_equal(pycoll.allgatherv(send, [None, counts], algorithm=algorithm).get(), theirs)
    for algorithm in pycoll.algorithms("gatherv"):
        ours = pycoll.gatherv(send, [None, counts] if RANK == 0 else None, algorithm=algorithm)
        assert RANK or np.array_equal(ours.get(), theirs)
    for algorithm in pycoll.algorithms("scatterv"):
        whole = [produced(xp, theirs), counts] if RANK == 0 else None
        ours = pycoll.scatterv(whole, xp.empty(mine, theirs.dtype), algorithm=algorithm)
        np.testing.assert_array_equal(ours.get(), np.full(mine, RANK))
    for algorithm in pycoll.algorithms("alltoallv"):
        out = produced(xp, np.repeat(np.arange(SIZE), mine))
        ours = pycoll.alltoallv([out, [mine] * SIZE], [None, counts], algorithm=algorithm)
        np.testing.assert_array_equal(ours.get(), np.full(sum(counts), RANK))
    for algorithm in pycoll.algorithms("reduce_scatter"):
        block = pycoll.reduce_scatter(produced(xp, theirs), recvcounts=counts, algorithm=algorithm)
        np.testing.assert_array_equal(block.get(), np.full(mine, RANK * SIZE))


def test_blocks_with_gaps_between_them(xp, way):
    displs = [3 * rank for rank in range(SIZE)]
    table = produced(xp, np.full(3 * SIZE, -1))
    pycoll.allgatherv(produced(xp, np.full(2, RANK)), [table, ([2] * SIZE, displs)])
    np.testing.assert_array_equal(table.get().reshape(SIZE, 3), [[rank, rank, -1] for rank in range(SIZE)])


def test_the_communicators_methods(xp, way):
    comm = pycoll.Comm(MPI.COMM_WORLD)
    send, recv = produced(xp, np.arange(30) + RANK), xp.empty(30, int)
    comm.Allreduce(send, recv)
    np.testing.assert_array_equal(recv.get(), np.arange(30) * SIZE + sum(range(SIZE)))
    comm.Bcast([recv, 5, MPI.LONG], root=SIZE - 1)
    everything = xp.empty((SIZE, 30), int)
    comm.Allgather([send, MPI.LONG], everything)
    np.testing.assert_array_equal(everything.get(), [np.arange(30) + rank for rank in range(SIZE)])
    request = comm.Ialltoall(produced(xp, np.full(SIZE, RANK)), target := xp.empty(SIZE, int))
    request.Wait()
    np.testing.assert_array_equal(target.get(), np.arange(SIZE))
    counts = [1] * SIZE
    comm.Reduce_scatter(produced(xp, np.arange(SIZE)), mine := xp.empty(1, int), counts)
    np.testing.assert_array_equal(mine.get(), [RANK * SIZE])


def test_datatypes_with_gaps(xp, way):
    """Only every third number is sent and received; the gaps are left unchanged."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    column = MPI.LONG.Create_vector(4, 1, 3).Create_resized(0, 96).Commit()
    send, recv = produced(xp, np.arange(12) + 100 * RANK), produced(xp, np.full(12 * SIZE, -1))
    comm.Allgather([send, 1, column], [recv, 1, column])
    expected = np.full((SIZE, 12), -1)
    for rank in range(SIZE):
        expected[rank, ::3] = np.arange(0, 12, 3) + 100 * rank
    np.testing.assert_array_equal(recv.get().reshape(SIZE, 12), expected)
    column.Free()


def test_blocks_of_different_datatypes(xp, way):
    comm = pycoll.Comm(MPI.COMM_WORLD)
    send, recv = produced(xp, np.arange(SIZE) + 10 * RANK), xp.empty(SIZE, int)
    places, types = [8 * rank for rank in range(SIZE)], [MPI.LONG] * SIZE
    comm.Alltoallw([send, [1] * SIZE, places, types], [recv, [1] * SIZE, places, types])
    np.testing.assert_array_equal(recv.get(), RANK + 10 * np.arange(SIZE))


def test_reductions_of_unknown_elements_are_refused(xp, way):
    comm = pycoll.Comm(MPI.COMM_WORLD)
    pair = MPI.DOUBLE.Create_contiguous(2).Commit()
    op = MPI.Op.Create(lambda left, right, datatype: None)
    with pytest.raises(TypeError, match=r"allreduce of elements .* is not supported in GPU memory"):
        comm.Allreduce([xp.empty(4), pair], [xp.empty(4), pair], op)
    op.Free()
    pair.Free()


def test_messages(xp, way):
    out, back = produced(xp, np.arange(20.0) + RANK), xp.empty(20)
    request = pycoll.irecv(back, LEFT, 3)
    pycoll.send(out, RIGHT, 3)
    pycoll.waitall([request])
    np.testing.assert_array_equal(back.get(), np.arange(20.0) + LEFT)
    np.testing.assert_array_equal(pycoll.sendrecv(out, RIGHT, source=LEFT).get(), np.arange(20.0) + LEFT)
    requests = [pycoll.irecv(back, LEFT), pycoll.isend(out, RIGHT)]
    while not pycoll.testall(requests)[0]:
        pass
    np.testing.assert_array_equal(back.get(), np.arange(20.0) + LEFT)
    status, mine = MPI.Status(), produced(xp, np.full(20, -1.0))
    request = pycoll.isend(out[:5], RIGHT)
    pycoll.recv(mine, LEFT, status=status)
    request.Wait()
    assert status.Get_count(MPI.DOUBLE) == 5
    np.testing.assert_array_equal(mine.get(), [*np.arange(5.0) + LEFT, *[-1.0] * 15])


def test_messages_of_the_communicator(xp, way):
    comm = pycoll.Comm(MPI.COMM_WORLD)
    out, back = produced(xp, np.arange(20.0) + RANK), produced(xp, np.full(20, -1.0))
    request = comm.Irecv(back, LEFT)
    comm.Send(out, RIGHT)
    request.Wait()
    np.testing.assert_array_equal(back.get(), np.arange(20.0) + LEFT)
    comm.Sendrecv([out, 3, MPI.DOUBLE], RIGHT, 0, [back, MPI.DOUBLE], LEFT)
    np.testing.assert_array_equal(back.get(), np.arange(20.0) + LEFT)
    column, host = MPI.DOUBLE.Create_vector(5, 1, 4).Commit(), np.full(5, -1.0)
    request = comm.Isend([out, 1, column], RIGHT)
    comm.Recv(host, LEFT)
    request.Wait()
    np.testing.assert_array_equal(host, np.arange(0.0, 20, 4) + LEFT)
    request = comm.Isend(host, RIGHT)
    comm.Recv([back, 1, column], LEFT)
    request.Wait()
    expected = np.arange(20.0) + LEFT
    expected[::4] = np.arange(0.0, 20, 4) + (RANK - 2) % SIZE
    np.testing.assert_array_equal(back.get(), expected)
    column.Free()
    if way == "staged" or SIZE == 1:
        with pytest.raises(TypeError, match="Ssend: a buffer is in GPU memory"):
            comm.Ssend(out, RIGHT)
        with pytest.raises(TypeError, match="Recv_init: a buffer is in GPU memory"):
            comm.Recv_init([out, MPI.DOUBLE], source=LEFT)


@pytest.mark.parametrize("name", ["Bsend", "Ibsend", "Sendrecv_replace", "Bsend_init"])
def test_copies_that_mpi_makes_with_the_cpu(xp, way, name):
    """MPI copies the buffers of these calls with the CPU, even if its UCX is CUDA-aware."""
    comm, out = pycoll.Comm(MPI.COMM_WORLD), produced(xp, np.arange(20.0))
    with pytest.raises(TypeError, match=f"{name}: a buffer is in GPU memory"):
        getattr(comm, name)(out, RIGHT)


def test_persistent_messages_follow_their_streams(xp, way):
    """Each start of a persistent message waits for the work of the caller."""
    if way == "staged" or SIZE == 1:
        pytest.skip("refused")
    comm, out, back = pycoll.Comm(MPI.COMM_WORLD), xp.empty(20), xp.empty(20)
    request = comm.Send_init([out, MPI.DOUBLE], RIGHT)
    for step in range(3):
        out[...] = xp.asarray(np.full(20, RANK + 10.0 * step))
        request.Start()
        comm.Recv(back, LEFT)
        request.Wait()
        np.testing.assert_array_equal(back.get(), np.full(20, LEFT + 10.0 * step))
    request.Free()


def test_messages_of_a_rank_to_itself(xp, way, strict_mpi):
    """They need not go through UCX, so they are staged unless MPI itself is CUDA-aware."""
    comm, out, back = pycoll.Comm(MPI.COMM_WORLD), produced(xp, np.arange(20.0) + RANK), xp.empty(20)
    for source in (RANK, MPI.ANY_SOURCE):
        request = comm.Irecv([back, MPI.DOUBLE], source, 9)
        comm.Send([out, MPI.DOUBLE], RANK, 9)
        request.Wait()
        np.testing.assert_array_equal(back.get(), np.arange(20.0) + RANK)
        back.fill(-1)


def test_messages_keep_their_arrays(xp, way):
    """Temporaries and packed copies live until the message is complete, although MPI only has their address."""
    matrix = produced(xp, np.arange(4000.0).reshape(40, 100) + RANK)
    requests = [pycoll.isend(matrix[:, ::2], RIGHT, 1), pycoll.isend(matrix.copy(), RIGHT, 2)]
    gc.collect()
    noise = [produced(xp, np.full((40, n), -1.0)) for n in (50, 100) for _ in range(20)]
    xp.cuda.get_current_stream().synchronize()
    columns, whole = xp.empty((40, 50)), xp.empty((40, 100))
    pycoll.recv(columns, LEFT, 1)
    pycoll.recv(whole, LEFT, 2)
    pycoll.waitall(requests)
    expected = np.arange(4000.0).reshape(40, 100) + LEFT
    np.testing.assert_array_equal(columns.get(), expected[:, ::2])
    np.testing.assert_array_equal(whole.get(), expected)
    assert len(noise) == 40


def test_messages_that_cannot_be_sent(xp, way):
    """A failed call leaves no posted receive, which would match the next message."""
    out, back = produced(xp, np.arange(20.0) + RANK), xp.empty(20)
    with pytest.raises(MPI.Exception):
        pycoll.sendrecv(out, SIZE + 5, recvbuf=back, source=LEFT)
    np.testing.assert_array_equal(pycoll.sendrecv(out, RIGHT, source=LEFT).get(), np.arange(20.0) + LEFT)


def test_messages_that_mpi_has_completed(xp, monkeypatch):
    """If MPI itself completes a staged message, the data is not in GPU memory, and `Wait` raises an error."""
    monkeypatch.setenv("PYCOLL_CUDA_AWARE", "0")
    forget()
    back = xp.empty(20)
    request = pycoll.irecv(back, LEFT, 8)
    pycoll.send(produced(xp, np.arange(20.0)), RIGHT, 8)
    MPI.Request.Waitall([request])
    with pytest.raises(RuntimeError, match="completed a message to a GPU"):
        request.Wait()


def test_messages_while_a_collective_is_in_flight(xp, way):
    collective = pycoll.iallreduce(produced(xp, np.arange(4000.0)))
    back = xp.empty(20)
    request = pycoll.isend(produced(xp, np.arange(20.0) + RANK), RIGHT, 5)
    pycoll.recv(back, LEFT, 5)
    request.Wait()
    np.testing.assert_array_equal(back.get(), np.arange(20.0) + LEFT)
    np.testing.assert_array_equal(collective.wait().get(), np.arange(4000.0) * SIZE)


def test_the_progress_thread(xp, way):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started without threads")
    with pycoll.progress_thread():
        requests = [pycoll.iallreduce(produced(xp, np.arange(5000.0) + n)) for n in range(3)]
        for n, request in enumerate(requests):
            np.testing.assert_array_equal(request.wait().get(), (np.arange(5000.0) + n) * SIZE)


def test_a_buffer_without_cupy(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cupy", None)
    interface = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}
    buffer = type("OnGPU", (), {"__cuda_array_interface__": interface})()
    with pytest.raises(TypeError, match=r"sendbuf is in GPU memory, which needs the package CuPy \(the extra cuda12"):
        pycoll.allreduce(buffer)


def test_what_is_said_when_mpi_is_not_cuda_aware(xp, monkeypatch):
    """The warning is issued only once."""
    monkeypatch.delenv("PYCOLL_CUDA_AWARE", raising=False)
    forget()
    if cuda_aware.support().aware:
        pytest.skip("MPI is CUDA-aware")
    buffer = produced(xp, np.ones(3))
    reason = re.escape(cuda_aware.support().reason)
    with pytest.warns(RuntimeWarning, match=f"staged through host memory.*: {reason};") as said:
        pycoll.allreduce(buffer)
        pycoll.bcast(buffer)
    assert [one.filename for one in said if "host memory" in str(one.message)] == [__file__]


def test_selecting_a_gpu(xp):
    import warnings

    sharing = SIZE > xp.cuda.runtime.getDeviceCount()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        number = pycoll.select_device()
    assert 0 <= number < xp.cuda.runtime.getDeviceCount()
    assert bool(said) == sharing
    if sharing:
        assert f"ranks share GPU {number}" in str(said[0].message) and said[0].filename == __file__
