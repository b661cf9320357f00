"""A nonblocking collective with gaps is the first call on COMM_SELF."""

import numpy as np
from mpi4py import MPI

gaps = MPI.INT.Create_vector(3, 1, 2).Commit()
send, recv = np.arange(6, dtype="i"), np.zeros(6, "i")
MPI.COMM_SELF.Iallgather([send, 1, gaps], [recv, 1, gaps]).Wait()
print(recv.tolist())
