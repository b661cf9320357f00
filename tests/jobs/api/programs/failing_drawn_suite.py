"""A test with drawn examples that fails on rank 1, while the other ranks wait for it."""

import pytest
from hypothesis import given, strategies
from mpi4py import MPI

import pycoll


@pytest.mark.mpi
@given(number=strategies.integers())
def test_drawn(together, number):
    together(check, number)


def check(number):
    assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"
    pycoll.barrier()
