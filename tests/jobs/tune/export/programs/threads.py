"""A blocking call lets a collective in flight go on, in another thread, after the control variables were used."""

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.tune.export.mpi_t import ControlVariables

ControlVariables()
comm = pycoll.Comm(MPI.COMM_WORLD)
total = np.empty(1 << 20)
request = comm.Iallreduce(np.ones(1 << 20), total, algorithm="ring")
for step in (comm.Dup, request.Wait) if comm.rank == 0 else (request.Wait, comm.Dup):
    step()
assert (total == comm.size).all()
print("all is right")
