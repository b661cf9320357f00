"""How ranks share the cores of a host."""

from __future__ import annotations

import os
import time

from mpi4py import MPI
from threadpoolctl import threadpool_limits

from pycoll.base.mpi import ranks_of_host


def core_share(comm: MPI.Intracomm) -> int:
    """Return how many of the cores of its host each rank may use.  All ranks call this together."""
    return max(1, len(os.sched_getaffinity(0)) // len(ranks_of_host(comm)))


def share_cores(comm: MPI.Intracomm) -> None:
    """Limit each rank to its share of the cores in matrix products, unless the user has set the number of threads."""
    share = core_share(comm)
    if not any(variable.endswith("NUM_THREADS") for variable in os.environ):
        threadpool_limits(share)


def wait_quietly(comm: MPI.Intracomm) -> None:
    """Wait at a barrier without using the cores, which other ranks may need."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)
