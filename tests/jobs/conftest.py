"""Skips tests of jobs that go on after a rank has died, where MPI does not support it."""

from functools import cache

import pytest

from tests.launch import run
from tests.quick import ULFM


@cache
def fault_tolerant():
    """Return whether a job can continue after a rank has died."""
    return run(1, ["-c", "from mpi4py import MPI; MPI.COMM_SELF.Dup().Revoke()"], options=ULFM).code == 0


@pytest.fixture(autouse=True)
def _ulfm(request):
    if request.node.get_closest_marker("ulfm") and not fault_tolerant():
        pytest.skip("this MPI cannot go on after a rank has died (mpiexec has no --with-ft ulfm)")
