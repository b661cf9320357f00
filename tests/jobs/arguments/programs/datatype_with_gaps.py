"""A persistent request with a datatype with gaps outlives MPI."""

import numpy as np
from mpi4py import MPI

import pycoll

comm = pycoll.Comm(MPI.COMM_WORLD)
column = MPI.INT.Create_vector(2, 1, 2).Commit()
persistent = comm.Bcast_init([np.zeros(4, "i4"), 1, column])
persistent.Start()
persistent.Wait()
persistent.Free()
MPI.Finalize()
del persistent
