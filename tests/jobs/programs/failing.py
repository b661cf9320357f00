"""Rank 1 fails in a program of mpi4py, and the other ranks wait for it."""

import numpy as np
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    raise RuntimeError("the second rank has had enough")
MPI.COMM_WORLD.Allreduce(np.ones(2), np.empty(2))
