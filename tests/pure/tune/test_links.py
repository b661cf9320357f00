"""In a tournament, each rank meets each other rank once, and both in the same round."""

import pytest

pytest.importorskip("mpi4py.MPI")
from mpi4py import MPI

from pycoll.tune.links import opponents


@pytest.mark.parametrize("ranks", range(2, 14))
def test_the_rounds_of_a_tournament(ranks):
    partners = [[*opponents(rank, ranks)] for rank in range(ranks)]
    for rank, others in enumerate(partners):
        assert len(others) == ranks - 1 + ranks % 2
        assert sorted({*others} - {MPI.PROC_NULL}) == [other for other in range(ranks) if other != rank]
        for number, other in enumerate(others):
            assert other == MPI.PROC_NULL or partners[other][number] == rank
