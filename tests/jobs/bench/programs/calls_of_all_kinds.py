"""Makes collectives of all kinds on several communicators."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
vector, block = np.ones(4), np.ones(2)
world.Allreduce(MPI.IN_PLACE, vector)
for _ in range(3):
    world.barrier()
world.scatter([1.5, 2.5] if world.rank == 0 else None)
world.allgather((1, 2.0))
copy = world.Dup()
copy.Bcast([vector, 3, MPI.DOUBLE])
copy.Iallgather(block, vector).Wait()
grid = world.Create_cart([2])
grid.Alltoall(vector, np.empty(4))
grid.Neighbor_allgather(block, np.empty(4))
grid.Sub([False]).bcast("alone")
world.Bcast(np.ones(10_000))
