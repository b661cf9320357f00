"""Rank 1 never calls MPI_Finalize."""

import atexit
import sys
import time

import numpy as np
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    atexit.register(time.sleep, 1000)  # registered first, so it is called last; the other ranks wait in MPI_Finalize
from pycoll.parallel import SGD, DistributedDataParallel, elastic

setattr(sys.modules["pycoll.parallel.elastic.run"], "LONG_PATIENCE", 1.0)  # noqa: B010 - `run` is also a function


def make(comm):
    parameters = {"weight": np.zeros(3)}
    return DistributedDataParallel(parameters, comm=comm), SGD(parameters, lr=0.1)


elastic.run(lambda state: print("trained", flush=True), elastic.State(make))
