"""Calls that do not match raise an error where they meet in slots, also without ``PYCOLL_CHECK``."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi(min_size=2)
FIRST = RANK == 0
TURNS = 40  # a rank that waits for nobody runs ahead by 16 turns at most


def ones(count, dtype=float):
    return np.ones(count, dtype)


def allreduce(comm, count, dtype=float, op=MPI.SUM):
    comm.Allreduce(ones(count, dtype), ones(count, dtype), op)


CALLS = {
    "count": lambda comm: allreduce(comm, 2 if FIRST else 3),
    "count in other slots": lambda comm: allreduce(comm, 2 if FIRST else 300),
    "long count": lambda comm: allreduce(comm, 300_000 if FIRST else 300_001),
    "short and long": lambda comm: allreduce(comm, 2 if FIRST else 300_000),
    "dtype": lambda comm: allreduce(comm, 2, "i8" if FIRST else "f8"),
    "operation": lambda comm: allreduce(comm, 2, op=MPI.MAX if FIRST else MPI.SUM),
    "root": lambda comm: comm.Reduce(ones(2), ones(2), root=0 if FIRST else 1),
    "broadcast": lambda comm: comm.Bcast(ones(2 if FIRST else 3)),
    "primitive": lambda comm: comm.Allgather(ones(1), ones(SIZE)) if FIRST else allreduce(comm, 1),
    "barrier": lambda comm: comm.Barrier() if FIRST else allreduce(comm, 1),
    "object and buffer": lambda comm: comm.allreduce(1.0) if FIRST else allreduce(comm, 1),
    "objects": lambda comm: comm.allgather(1.0) if FIRST else comm.bcast(1.0),
}


@pytest.mark.parametrize("kind", CALLS)
def test_calls_that_do_not_match(kind):
    own = pycoll.Comm(WORLD.Dup())
    own.Barrier()
    with pytest.raises(pycoll.MismatchError, match=r"another collective than rank|cannot be used any more"):
        for _ in range(TURNS):
            CALLS[kind](own)
    WORLD.Barrier()


def test_calls_that_match():
    """Bytes are what counts where blocks are only moved, and in place or not is the choice of each rank."""
    own = pycoll.Comm(WORLD.Dup())
    own.Bcast(ones(2) if FIRST else np.ones(4, "f4"))
    total = np.full(3, 2.0)
    own.Allreduce(MPI.IN_PLACE if FIRST else total.copy(), total)
    np.testing.assert_array_equal(total, np.full(3, 2.0 * SIZE))
    block, gathered = ones(2), np.empty(2 * SIZE)
    own.Allgather([block, MPI.DOUBLE] if FIRST else [block.view("u1"), MPI.BYTE], gathered)
    np.testing.assert_array_equal(gathered, ones(2 * SIZE))
    counts = [1] * SIZE if FIRST else None
    np.testing.assert_array_equal(pycoll.reduce_scatter(ones(SIZE), recvcounts=counts, comm=own), [SIZE])
    own.Free()
