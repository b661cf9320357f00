"""Rank 0 waits in Recv for a rank that first waits for a nonblocking collective."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
a, b, t = np.ones(1 << 20), np.empty(1 << 20), np.empty(1)
request = comm.Iallreduce(a, b)
if comm.rank == 0:
    comm.Recv(t, source=1)
    request.Wait()
else:
    request.Wait()
    comm.Send(b[:1], dest=0)
print("came to its end", b[0])
