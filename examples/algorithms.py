"""Call an all-reduce with each of its algorithms, and count the messages that each one sends.

Run it with ``mpiexec -n 4 python examples/algorithms.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

vector = np.arange(100_000) + rank
expected = size * np.arange(100_000) + sum(range(size))
for name in pycoll.algorithms("allreduce"):
    with pycoll.traffic() as sent:
        total = pycoll.allreduce(vector, algorithm=name)
    assert np.array_equal(total, expected), name
    messages, nbytes = pycoll.allreduce(np.array([sent.messages, sent.nbytes]), op="max").tolist()
    if rank == 0:
        print(f"allreduce {name:24} a rank sends at most {messages} message{'s' * (messages != 1)}, {nbytes} bytes")

# every collective takes algorithm=; without it, pycoll chooses
values = np.full(1000, rank)
pycoll.bcast(values, root=size - 1, algorithm="scatter_allgather")
assert (values == size - 1).all()

rows = pycoll.allgather(np.array([rank, rank**2]), algorithm="bruck")
assert rows.tolist() == [[n, n**2] for n in range(size)]

largest = pycoll.reduce(vector, op="max", algorithm="tree")
assert (largest is None) == (rank != 0)

choice = pycoll.explain("allreduce", nbytes=vector.nbytes)
assert choice.algorithm in [*pycoll.algorithms("allreduce"), "native"]
if rank == 0:
    assert np.array_equal(largest, np.arange(100_000) + size - 1)
    print(choice)
