"""Solve a least-squares problem with a persistent all-reduce, which is created once and started in each step.

Run it with ``mpiexec -n 4 python examples/persistent.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll

STEPS, UNKNOWNS, EQUATIONS = 200, 20, 200  # equations per rank

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

truth = np.random.default_rng(0).normal(size=UNKNOWNS)
matrix = np.random.default_rng([1, rank]).normal(size=(EQUATIONS, UNKNOWNS))
values = matrix @ truth

x = np.zeros(UNKNOWNS)
mine, average = np.empty(UNKNOWNS), np.empty(UNKNOWNS)
with pycoll.allreduce_init(mine, average, op="avg") as reduction:  # collective: all ranks call it
    for _ in range(STEPS):
        mine[...] = matrix.T @ (matrix @ x - values) / EQUATIONS
        reduction.Start()
        # do not access the buffers here; compute something else
        reduction.Wait()
        x -= 0.5 * average

error = np.abs(x - truth).max()
assert error < 1e-6
bits = pycoll.allgather(x)  # the result of an all-reduce has the same bits on all ranks
assert all(np.array_equal(other, x) for other in bits)
if rank == 0:
    print(f"{STEPS} steps on {size} ranks, {EQUATIONS * size} equations: largest error {error:.1e}")
