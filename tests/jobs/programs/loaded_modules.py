"""Print the modules that are imported after a call."""

import sys

import numpy as np
from mpi4py import MPI

MPI.COMM_WORLD.Allreduce(np.ones(3), np.empty(3))
print("modules", *sys.modules)
