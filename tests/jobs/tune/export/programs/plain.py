"""Collectives of so many bytes on each rank, by mpi4py alone."""

import sys

import numpy as np
from mpi4py import MPI

comm, count = MPI.COMM_WORLD, int(sys.argv[1]) // 8
mine, all_of_them = np.full(count, float(comm.rank)), np.empty((comm.size, count))
comm.Allgather(mine, all_of_them)
assert (all_of_them == np.arange(comm.size)[:, None]).all()
comm.Alltoall(np.repeat(all_of_them[comm.rank], comm.size), all_of_them)
assert (all_of_them == np.arange(comm.size)[:, None]).all()
for root in range(comm.size):
    mine[:] = comm.rank
    comm.Bcast(mine, root)
    assert (mine == root).all()
comm.Allreduce(np.full(count, 1.0), mine)
assert (mine == comm.size).all()
print("all is right")
