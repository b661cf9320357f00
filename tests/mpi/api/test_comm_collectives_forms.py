"""The forms of buffers in short calls of `pycoll.Comm`."""

import array
import mmap

import numpy as np
import pytest
from mpi4py import MPI

from tests.mpi.api.test_comm_collectives_short import comm  # noqa: F401 (a fixture)
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi
ROOT, N = SIZE - 1, 16  # bytes


MEMORIES = {
    "mmap": lambda nbytes: mmap.mmap(-1, nbytes),
    "bytearray": bytearray,
    "memoryview": lambda nbytes: memoryview(bytearray(nbytes)),
    "array.array": lambda nbytes: array.array("B", bytes(nbytes)),
    "MPI.buffer": lambda nbytes: MPI.buffer.allocate(nbytes, clear=True),
    "ndarray": lambda nbytes: np.zeros(nbytes, np.uint8),
    "ndarray of another dtype": lambda nbytes: np.zeros(nbytes // 4, np.int32),
}
FORMS = {
    "count": lambda memory, nbytes: [memory, nbytes, MPI.BYTE],
    "type": lambda memory, nbytes: [memory, MPI.BYTE],
    "count of another type": lambda memory, nbytes: (memory, nbytes // 4, MPI.INT32_T),
    "tuple": lambda memory, nbytes: (memory, MPI.BYTE),
    "memory": lambda memory, nbytes: memory,
}


def as_bytes(memory):
    return np.frombuffer(memory, np.uint8)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("allocate", MEMORIES.values(), ids=MEMORIES)
def test_memory_of_any_type(comm, allocate, form):  # noqa: F811
    part, whole, other = allocate(N), allocate(N * SIZE), allocate(N * SIZE)
    # the count of a buffer with a block of each rank is the count of one block
    of_part, of_whole, of_other = (form(memory, N) for memory in (part, whole, other))
    ranks = np.repeat(np.arange(SIZE), N)

    as_bytes(part)[:] = RANK
    for name in "Allgather", "Iallgather":
        as_bytes(whole)[:] = 99
        if request := getattr(comm, name)(of_part, of_whole):
            request.Wait()
        assert (as_bytes(whole) == ranks).all()
    comm.Allgather(MPI.IN_PLACE, of_whole)
    comm.Alltoall(of_whole, of_other)
    assert (as_bytes(other) == RANK).all()
    as_bytes(other)[:] = 99
    comm.Gather(of_part, of_other if RANK == ROOT else None, ROOT)
    comm.Gather(MPI.IN_PLACE if RANK == ROOT else of_part, of_other if RANK == ROOT else None, ROOT)
    assert (as_bytes(other) == (ranks if RANK == ROOT else 99)).all()
    as_bytes(part)[:] = 99
    comm.Scatter(of_other if RANK == ROOT else None, of_part, ROOT)
    comm.Scatter(of_other if RANK == ROOT else None, MPI.IN_PLACE if RANK == ROOT else of_part, ROOT)
    assert (as_bytes(part) == RANK).all()
    comm.Bcast(of_part, ROOT)
    assert (as_bytes(part) == ROOT).all()


@pytest.mark.parametrize("op", [MPI.SUM, MPI.PROD])
def test_reductions_in_place_and_with_a_type(comm, op):  # noqa: F811
    x, y = np.full(4, 2.0, np.float32), np.full(4, 2.0, np.float32)
    combined = 2 * SIZE if op == MPI.SUM else 2**SIZE
    for given in x, [x, MPI.FLOAT], [x, 4, MPI.FLOAT], (x, MPI.FLOAT), MPI.IN_PLACE:
        for wanted in y, [y, MPI.FLOAT], [y, 4, MPI.FLOAT]:
            y[:] = 2
            comm.Allreduce(given, wanted, op)
            assert (y == combined).all()


def test_ranks_agree_at_the_limit_however_they_write_their_arguments(comm):  # noqa: F811
    limit = 8 << 10
    for nbytes in limit - 8, limit, limit + 8, limit + 8:
        count = nbytes // 8
        send, recv = np.ones(count), np.zeros(count)
        forms = [
            recv,
            [recv, MPI.DOUBLE],
            [recv, count, MPI.DOUBLE],
            (recv, count, MPI.DOUBLE),
            [recv, (count, 0), "d"],
        ]
        for turn in range(len(forms)):
            recv[:] = 0
            comm.Allreduce(send, forms[(turn + RANK) % len(forms)])
            assert (recv == SIZE).all()
            comm.Allreduce(MPI.IN_PLACE, forms[(turn + RANK) % len(forms)])
            assert (recv == SIZE * SIZE).all()


def test_wrong_arguments_raise_errors_before_the_call(comm):  # noqa: F811
    comm.Bcast(np.zeros(2))
    for buffer in [bytearray(8), -1, MPI.BYTE], [bytearray(6), MPI.DOUBLE]:
        with pytest.raises(ValueError):
            comm.Bcast(buffer)
    with pytest.raises(TypeError):
        comm.Bcast()
    comm.Barrier()
