"""Run an mpi4py program with the collectives of pycoll by changing one line.

Run it with ``mpiexec -n 4 python examples/drop_in.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll

ROWS, STEPS = 60, 100  # rows of the matrix on each rank; iterations


def largest_eigenvalue(comm: MPI.Intracomm) -> float:
    """Compute the largest eigenvalue of a row-distributed matrix by the power method, with calls of mpi4py only."""
    n = ROWS * comm.Get_size()
    whole = np.random.default_rng(0).random((n, n))
    rows = np.array_split(whole + whole.T, comm.Get_size())[comm.Get_rank()]
    vector, value = np.ones(n), np.zeros(1)
    for _ in range(STEPS):
        part = rows @ vector
        comm.Allreduce([np.array([part @ part]), MPI.DOUBLE], [value, MPI.DOUBLE], op=MPI.SUM)
        comm.Allgather([part / np.sqrt(value[0]), MPI.DOUBLE], [vector, MPI.DOUBLE])
    return float(np.sqrt(value[0]))


pycoll.abort_on_exception()
plain = largest_eigenvalue(MPI.COMM_WORLD)

comm = pycoll.Comm(MPI.COMM_WORLD)  # the line that changes
comm.algorithm["Allreduce"] = "recursive_doubling"  # optional: by default pycoll chooses an algorithm, or calls MPI
comm.algorithm["Allgather"] = "ring"
with pycoll.traffic() as sent:
    value = largest_eigenvalue(comm)
assert np.isclose(value, plain)
assert comm.size == 1 or sent.messages >= 2 * STEPS  # pycoll has sent the messages

half = comm.Split(comm.rank % 2)  # derived communicators use the same algorithms
assert isinstance(half, pycoll.Comm) and half.algorithm["Allgather"] == "ring"
half.Free()
if comm.rank == 0:
    print(f"largest eigenvalue with MPI {plain:.6f}, with pycoll {value:.6f}; rank 0 sent {sent.messages} messages")
