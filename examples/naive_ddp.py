"""Data-parallel training in thirty lines: equal parameters, different data, averaged gradients.

Run with: mpiexec -n 2 python examples/naive_ddp.py
"""

import numpy as np
from mpi4py import MPI

import pycoll

rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
numbers = np.random.default_rng(0)  # the same data on all ranks, of which each one uses its share
inputs, truth = numbers.standard_normal((25 * size, 3)), np.array([1.0, -2.0, 3.0])
targets = inputs @ truth
mine = slice(25 * rank, 25 * (rank + 1))

weights = np.random.default_rng(rank).standard_normal(3)
pycoll.bcast(weights)  # begin with the parameters of rank 0
alone = weights.copy()  # one process, with all the data
for _ in range(60):
    gradient = inputs[mine].T @ (inputs[mine] @ weights - targets[mine]) / 25
    pycoll.allreduce(MPI.IN_PLACE, gradient, op="avg")  # all ranks make the same step
    weights -= 0.1 * gradient
    alone -= 0.1 * inputs.T @ (inputs @ alone - targets) / len(inputs)

if rank == 0:
    print(f"weights {weights.round(2)}; largest difference from one process {abs(weights - alone).max():.0e}")
