"""A rank exits while the others wait for it."""

import os
import time

import numpy as np
from mpi4py import MPI

import pycoll

comm = pycoll.Comm(MPI.COMM_WORLD.Dup())
pycoll.barrier(comm=comm)
if comm.rank == 1:
    os._exit(86)
try:
    pycoll.allreduce(np.ones(3), comm=comm)
except pycoll.RankFailed as error:
    assert error.ranks == (1,), error
    alive = comm.Shrink()
    assert (pycoll.allreduce(np.ones(3), comm=alive) == 2).all()
    print("rank", comm.rank, "went on", flush=True)
    alive.Barrier()
except pycoll.CollectiveTimeout as error:
    assert "--mca mpi_ft_detector true" in str(error), error
    print("rank", comm.rank, "has advice", flush=True)
time.sleep(1)
os._exit(0)
