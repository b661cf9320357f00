"""Collectives on several communicators."""

import numpy as np
from mpi4py import MPI

import pycoll

for comm in (MPI.COMM_WORLD, MPI.COMM_SELF, MPI.COMM_WORLD.Dup()):
    for _ in range(2):
        assert pycoll.allreduce(np.ones(3), comm=comm)[0] == comm.size
