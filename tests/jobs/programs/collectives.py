"""An mpi4py program that calls collectives of several communicators."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
total, everything = np.zeros(4), np.zeros((size, 4), "i")
comm.Allreduce(np.full(4, float(rank)), total)
comm.Allgather([np.full(4, rank, "i"), MPI.INT], [everything, MPI.INT])
assert (total == sum(range(size))).all() and (everything[:, 0] == range(size)).all()
alone = np.zeros(1)
MPI.COMM_SELF.Allreduce(np.ones(1), alone)
assert alone[0] == 1 and comm.allreduce(1) == size
half = comm.Split(rank % 2)
half.Barrier()
cart = comm.Create_cart([size])
cart.Barrier()
if rank == 0:
    print(__name__, type(comm).__module__, type(MPI.COMM_SELF).__name__, type(half).__name__, type(cart).__name__)
    print(sys.argv[1:], __file__.endswith(sys.argv[0]))
