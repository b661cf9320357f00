"""A rank is killed before pycoll has attached to the communicator."""

import os
import signal

import numpy as np
from mpi4py import MPI

import pycoll

world = MPI.COMM_WORLD
comm = pycoll.Comm(world.Dup())
world.Barrier()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for call in (lambda: pycoll.allreduce(np.ones(3), comm=world), lambda: comm.Split(0)):
    try:
        call()
    except pycoll.RankFailed as error:
        assert error.ranks == (1,), error
        print("rank", world.rank, "names it", flush=True)
try:
    comm.Agree(0)  # wait for the other rank
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED
finally:
    os._exit(0)
