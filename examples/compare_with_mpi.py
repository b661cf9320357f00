"""Compare every algorithm of several collectives with the native MPI collective: results and times.

Run it with ``mpiexec -n 4 python examples/compare_with_mpi.py``.  ``python -m pycoll.bench`` measures more carefully.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

import pycoll

CALLS = 10

pycoll.abort_on_exception()
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size

# integers, because their sum is the same in any order
vector = np.random.default_rng(rank).integers(0, 1000, size=1000 * size)
block = vector[:1000]
COMPARED = [
    ("allgather", comm.Allgather, block, vector.size),
    ("allreduce", comm.Allreduce, vector, vector.size),
    ("reduce_scatter", comm.Reduce_scatter_block, vector, block.size),
    ("alltoall", comm.Alltoall, vector, vector.size),
    ("scan", comm.Scan, vector, vector.size),
]


def timed(call: Callable[[], object]) -> float:
    """Return the median time of a call on the slowest rank, in microseconds."""
    seconds = []
    for _ in range(CALLS):
        comm.Barrier()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return float(np.median(pycoll.allreduce(np.array(seconds), op="max"))) * 1e6


for primitive, collective_of_mpi, sendbuf, count in COMPARED:
    expected = np.empty(count, dtype=sendbuf.dtype)
    micros = {"mpi": timed(partial(collective_of_mpi, sendbuf, expected))}
    for name in pycoll.algorithms(primitive):
        recvbuf = np.full_like(expected, -1)
        micros[name] = timed(partial(getattr(pycoll, primitive), sendbuf, recvbuf, algorithm=name))
        assert np.array_equal(recvbuf, expected), (primitive, name)
    if rank == 0:
        print(f"{primitive} (us): " + ", ".join(f"{name} {value:.0f}" for name, value in micros.items()))
