"""A communicator, and then a call, chooses an algorithm."""

from typing import Any

import numpy as np
from mpi4py import MPI

comm: Any = MPI.COMM_WORLD  # which has what pycoll adds
comm.Allreduce(np.ones(1), np.empty(1))
comm.algorithm["Allreduce"] = "tree"
comm.Allreduce(np.ones(2), np.empty(2))
comm.Allreduce(np.ones(3), np.empty(3), algorithm="naive")
