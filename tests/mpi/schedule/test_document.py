"""A schedule from a document runs on real ranks, as an algorithm of its own."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.document import algorithm_of, document_of
from pycoll.schedule.registry import PRIMITIVES, find, register_schedule

COMM = MPI.COMM_WORLD


@pytest.fixture
def imported():
    """The name of a ring for all ranks, registered for the time of a test."""
    register_schedule(algorithm_of(document_of(find("allreduce", "ring"), COMM.size), "imported"))
    yield pycoll.AlgorithmName("imported")
    del PRIMITIVES["allreduce"].algorithms["imported"]


def test_it_runs(imported):
    data = np.random.default_rng(COMM.rank).random(1000)
    mine, ring, expected = (np.empty(1000) for _ in range(3))
    pycoll.allreduce(data, mine, algorithm=imported)
    pycoll.allreduce(data, ring, algorithm="ring")
    COMM.Allreduce(data, expected)
    assert (mine == ring).all()
    np.testing.assert_allclose(mine, expected)


@pytest.mark.skipif(COMM.size == 1, reason="needs two ranks")
def test_other_numbers_of_ranks_are_refused(imported):
    alone = COMM.Split(COMM.rank)
    with pytest.raises(ValueError, match=r"imported is a schedule for .* ranks and root 0, not for 1 ranks and root 0"):
        pycoll.allreduce(np.ones(8), comm=alone, algorithm=imported)
    alone.Free()
