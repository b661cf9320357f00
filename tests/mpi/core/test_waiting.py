"""Ranks that wait for others."""

import resource
import statistics
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.runtime.attach import attach
from tests.mpi.native import RANK, WORLD

LATE = 1e-3  # seconds
TRIES = 50  # on a machine where other programs run

pytestmark = pytest.mark.mpi(min_size=2)


def sleeps():
    """How often this thread has slept; yielding the core does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def sleeps_in_late_call(comm, algorithm):
    send, recv = np.ones(1), np.empty(1)
    comm.Barrier()
    before, end = sleeps(), time.perf_counter() + LATE
    while RANK == 0 and time.perf_counter() < end:
        pass
    comm.Allreduce(send, recv, algorithm=algorithm)
    return sleeps() - before


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="sleeps are not counted for each thread")
@pytest.mark.parametrize("algorithm", [None, "recursive_doubling"])
def test_ranks_stay_awake_until_a_late_one_comes(algorithm):
    """Waking up takes longer than a short call; where another program uses the core, they sleep all the same."""
    comm = pycoll.Comm(WORLD)
    if attach(comm).facts.oversubscribed:
        pytest.skip("a rank that waits sleeps at once if ranks outnumber cores")
    for _ in range(TRIES):
        usual = statistics.median([sleeps_in_late_call(comm, algorithm) for _ in range(200)])
        if comm.allreduce(usual, MPI.MAX) == 0:
            return
    pytest.fail("a rank slept in most calls")
