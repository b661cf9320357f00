"""Pass buffers to collectives: given and allocated receive buffers, in place, and lists of arrays.

Run it with ``mpiexec -n 4 python examples/buffers.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

# a given receive buffer, which the call returns
sendbuf, recvbuf = np.full((3, 4), rank, dtype=np.float32), np.empty((3, 4), dtype=np.float32)
assert pycoll.allreduce(sendbuf, recvbuf, op="sum") is recvbuf
assert (recvbuf == sum(range(size))).all() and (sendbuf == rank).all()

# no receive buffer: pycoll allocates one
gathered = pycoll.allgather(sendbuf)
assert gathered.shape == (size, 3, 4) and (gathered[:, 0, 0] == range(size)).all()

# in place: the receive buffer contains the input
pycoll.allreduce(MPI.IN_PLACE, sendbuf, op="max")
assert (sendbuf == size - 1).all()

# blocks of rows: rank r gets row r of the sum
matrix = np.arange(size * 5).reshape(size, 5)
row = pycoll.reduce_scatter(matrix)
assert row.tolist() == (size * matrix[rank]).tolist()

# a noncontiguous view is packed
columns = np.arange(12.0).reshape(3, 4)[:, ::2]
assert np.array_equal(pycoll.allreduce(columns), size * columns)

# a list of arrays of one dtype: one message per round for all arrays; the results overwrite the arrays
weights, bias = np.ones((4, 4)), np.full(4, float(rank))
with pycoll.traffic() as sent:
    pycoll.allreduce([weights, bias], op="avg", algorithm="recursive_doubling")
assert (weights == 1).all() and np.allclose(bias, (size - 1) / 2)
if rank == 0:
    print(f"{size} ranks: the sum is {recvbuf[0, 0]:g}, the maximum {sendbuf[0, 0]:g}, the average bias {bias[0]:g}")
    print(f"two arrays in {sent.messages} message{'s' * (sent.messages != 1)} of rank 0, {sent.nbytes} bytes")
