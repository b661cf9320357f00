"""A test that fails on rank 1, while the other ranks wait for it."""

import pytest
from mpi4py import MPI

import pycoll

pytestmark = pytest.mark.mpi


def test_that_fails_on_one_rank():
    assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"
    pycoll.barrier()
