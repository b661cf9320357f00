"""What the ranks compare at the first use of a communicator."""

import numpy as np
import pytest

import pycoll
from pycoll.base.errors import MismatchError
from pycoll.runtime.attach import attach
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import PRIMITIVES, algorithm
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def one_by_one(rank, size, root):
    place = (rank - root) % size
    if place > 0:
        yield (Recv((rank - 1) % size, [0]),)
    if place < size - 1:
        yield (Send((rank + 1) % size, [0]),)


def delegating(rank, size, root):
    yield from one_by_one(rank, size, root)


@pytest.fixture
def comm():
    comm = WORLD.Dup()
    yield comm
    comm.Free()


@pytest.fixture
def register(monkeypatch):
    """Return a function that registers an algorithm of this program under the name relay."""

    def registered(generator):
        monkeypatch.setattr(generator, "__module__", "bcast")
        monkeypatch.setattr(generator, "__name__", "relay")
        algorithm()(generator)

    yield registered
    PRIMITIVES["bcast"].algorithms.pop("relay", None)


def test_an_own_algorithm_on_all_ranks(comm, register):
    register(one_by_one)
    result = pycoll.bcast(np.full(3, float(RANK)), comm=comm, algorithm="relay")
    np.testing.assert_array_equal(result, np.zeros(3))


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the same")
@pytest.mark.parametrize("others", [None, delegating])
def test_own_algorithms_that_differ(comm, register, others):
    """The error is raised on all ranks; the communicator can be used when the algorithms are the same."""
    if RANK == SIZE - 1:
        register(one_by_one)
    elif others:
        register(others)
    mine = "bcast.relay" if RANK == SIZE - 1 or others else "none"
    complaint = rf"rank {SIZE - 1} .* registered algorithms .* differ from those of rank 0; rank {RANK} has {mine}:"
    with pytest.raises(MismatchError, match=complaint):
        pycoll.bcast(np.ones(3), comm=comm, algorithm="ring")
    register(one_by_one)
    attach(comm)


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the same")
def test_versions_of_pycoll_that_differ(comm, monkeypatch):
    with monkeypatch.context() as other:
        if RANK == SIZE - 1:
            other.setattr("pycoll.runtime.facts.__version__", "0.0.9")
        mine = "0.0.9" if RANK == SIZE - 1 else pycoll.__version__
        complaint = f"rank {SIZE - 1} .* another version of pycoll than rank 0; rank {RANK} uses {mine}: install"
        with pytest.raises(MismatchError, match=complaint):
            pycoll.bcast(np.ones(3), comm=comm)
    attach(comm)
