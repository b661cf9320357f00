"""A test that waits forever."""

import pytest
from mpi4py import MPI

import pycoll


@pytest.mark.mpi
@pytest.mark.timeout(3)
def test_that_hangs():
    if MPI.COMM_WORLD.rank != 1:
        pycoll.barrier()
