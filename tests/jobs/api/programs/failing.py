"""Rank 1 fails in the way that the argument names, and the other ranks wait for it."""

import os
import signal
import sys
import threading

import numpy as np
from mpi4py import MPI

import pycoll


def fail():
    raise RuntimeError("the second rank has had enough")


WAYS = {
    "exception": fail,
    "arguments": lambda: pycoll.allreduce(np.ones(3), np.ones(4)),
    "thread": lambda: threading.Thread(target=fail).start(),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
}

pycoll.abort_on_exception()
pycoll.allreduce(np.ones(3))
if MPI.COMM_WORLD.rank == 1:
    WAYS[sys.argv[1]]()
pycoll.barrier()
