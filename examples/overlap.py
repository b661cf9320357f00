"""Compute a block while the all-reduces of the previous blocks are in flight.

Run it with ``mpiexec -n 2 python examples/overlap.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll

BLOCKS, LENGTH = 8, 200_000

pycoll.abort_on_exception()
pycoll.attach()  # collective: all ranks call it once, before nonblocking calls
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def compute(block: int, who: int) -> np.ndarray:
    """Return one block of the input of a rank."""
    return np.sqrt(np.arange(LENGTH) + block) * (who + 1)


requests: list[pycoll.Request] = []
in_flight = []  # the number of all-reduces in flight after each block
for block in range(BLOCKS):
    mine = compute(block, rank)
    in_flight.append(sum(not request.Test() for request in requests))  # Test also makes progress
    requests.append(pycoll.iallreduce(mine))
results = pycoll.waitall(requests)
for block, result in enumerate(results):
    assert np.allclose(result, sum(compute(block, who) for who in range(size)))

# a thread can make progress between calls of pycoll; it needs MPI_THREAD_MULTIPLE
threaded = MPI.Query_thread() == MPI.THREAD_MULTIPLE
if threaded:
    with pycoll.progress_thread():
        request = pycoll.iallreduce(compute(0, rank))
        other = compute(1, rank)  # meanwhile, the communication progresses
        assert np.array_equal(request.wait(), results[0])

# wait for requests of pycoll and of MPI together
token, received = np.array([rank]), np.empty(1, dtype=int)
right, left = (rank + 1) % size, (rank - 1) % size
answers = pycoll.waitall([pycoll.iallgather(token), pycoll.isend(token, right), pycoll.irecv(received, left)])
assert answers[0].ravel().tolist() == list(range(size)) and received[0] == left
if rank == 0:
    print(f"all-reduces in flight after computing each of {BLOCKS} blocks: {', '.join(map(str, in_flight))}")
    print(f"progress thread: {'used' if threaded else 'needs MPI_THREAD_MULTIPLE'}")
