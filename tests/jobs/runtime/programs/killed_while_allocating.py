"""A rank is killed while it allocates registered memory."""

import os
import signal
import sys
import threading

from mpi4py import MPI

import pycoll
from pycoll.runtime import shared_file

shared_file.LIMITED = sys.argv[1]
pycoll.free(pycoll.empty(1))
assert pycoll.attach().registered.areas
if MPI.COMM_WORLD.rank == int(sys.argv[2]):
    threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    pycoll.free(pycoll.empty(100 << 20, "u1"))
