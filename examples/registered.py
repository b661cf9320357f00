"""Average vectors in registered buffers, which the ranks of a host share, and compare the time with ordinary arrays.

Run it with ``mpiexec -n 2 python examples/registered.py``.
"""

import time

import numpy as np
from mpi4py import MPI

import pycoll

COUNT, CALLS = 1 << 20, 20  # float32 elements: 4 MiB

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

ordinary = np.empty(COUNT, np.float32), np.empty(COUNT, np.float32)
registered = pycoll.empty(COUNT, np.float32), pycoll.empty(COUNT, np.float32)  # collective: all ranks call it

best = {}
for name, (mine, average) in {"ordinary": ordinary, "registered": registered}.items():
    mine[...] = np.random.default_rng(rank).random(COUNT)
    times = []
    for _ in range(CALLS):
        pycoll.barrier()
        start = time.perf_counter()
        pycoll.allreduce(mine, average, op="avg")  # the same call for both
        times.append(time.perf_counter() - start)
    best[name] = pycoll.allreduce(np.array(np.median(times)), op="max")

assert np.array_equal(ordinary[1], registered[1])  # the same bits
how = pycoll.explain("allreduce", nbytes=4 * COUNT)
if rank == 0:
    print("registered buffers are", "used directly" if how.registered else "ordinary memory here")
    for name, seconds in best.items():
        print(f"{name:10}: {seconds * 1e6:8.1f} us")
for array in registered:
    pycoll.free(array)
