"""Add the forces of particles so that the result does not depend on which rank computes which of them.

Run it with ``mpiexec -n 4 python examples/exact_sum.py``.
"""

import math

import numpy as np
from mpi4py import MPI

import pycoll

PLACES = 1000

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def field(source: int) -> np.ndarray:
    """Return the force of one source on all places; sources are very different in size."""
    random = np.random.default_rng(source)
    return random.normal(size=PLACES) * 10.0 ** random.integers(-8, 8)


# each rank computes one source; then the ranks compute them in another order
forward, backward = field(rank), field(size - 1 - rank)
plain = [pycoll.allreduce(forces, algorithm="ring") for forces in (forward, backward)]
exact = [pycoll.allreduce(forces, op="exact_sum") for forces in (forward, backward)]
assert np.array_equal(exact[0], exact[1])
assert exact[0].tolist() == [math.fsum(forces) for forces in np.transpose([field(each) for each in range(size)])]
if rank == 0:
    differ = np.count_nonzero(plain[0] != plain[1])
    print(f"{size} sources in two orders: {differ} of {PLACES} plain sums differ, and no exact sum")
