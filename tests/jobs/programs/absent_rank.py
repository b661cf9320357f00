"""Rank 1 stops or sleeps, and the other ranks wait for it."""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

import pycoll

comm = pycoll.Comm(MPI.COMM_WORLD)
x, y = np.ones(10), np.empty(10)
for _ in range(3):
    pycoll.allreduce(x, y)
    comm.Allreduce(x, y)
pycoll.iallreduce(x, y).wait()
if comm.rank == 1:
    if sys.argv[1] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(200)
pycoll.allreduce(x, y)
