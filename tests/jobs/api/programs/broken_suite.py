"""A module that rank 1 cannot import, while the other ranks wait for it."""

import pytest
from mpi4py import MPI

import pycoll

assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"


@pytest.mark.mpi
def test_that_waits():
    pycoll.barrier()
