"""All ranks but one fail with the same error."""

import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD


def work():
    if world.rank == 1:
        raise KeyError("that of rank 1")
    world.Allreduce(np.ones(3), np.ones(4))


world.Barrier()
time.sleep(0.4 * (world.rank == 3))
work()
