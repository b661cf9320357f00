"""All forms of calls where the compiled core was not built."""

import sys

sys.modules["pycoll.core.front"] = None  # type: ignore[assignment]

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll import core

assert "it was not compiled" in core.problem
comm = pycoll.Comm(MPI.COMM_WORLD)
values, total = np.ones(1000), np.zeros(1000)
for _ in range(3):
    comm.Allreduce(values, total)
    assert (total == comm.size).all() and comm.allreduce(1.5) == 1.5 * comm.size
    assert (pycoll.iallreduce(values, algorithm="ring").wait() == comm.size).all()
with pycoll.bcast_init(values) as request:
    request.Start()
    request.Wait()
print("right")
