"""A communicator for the tests of registered buffers."""

import pytest

import pycoll
from tests.mpi.native import WORLD


@pytest.fixture(scope="module")
def comm():
    """Return a communicator that is freed at the end, with the registered memory that is left."""
    one = WORLD.Dup()
    pycoll.attach(one)
    yield one
    one.Free()
