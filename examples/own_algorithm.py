"""Prove, draw, and run a user-defined algorithm, which is in ``own_algorithms/allreduce.py``.

Run it with ``mpiexec -n 4 python examples/own_algorithm.py``.  To check the formulas of the algorithm too, run
``python -m pycoll.prove --file examples/own_algorithms/allreduce.py``.
"""

import numpy as np
import own_algorithms.allreduce  # noqa: F401  # registers the algorithm "chain"
from mpi4py import MPI

import pycoll
from pycoll.draw.frames import film
from pycoll.draw.text import text
from pycoll.schedule.proof import ProofError, prove
from pycoll.schedule.registry import find_schedule

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
chain = find_schedule("allreduce", "chain")

# without MPI: run all ranks symbolically, and count the rounds
for ranks in range(1, 13):
    try:
        counts = prove(chain, ranks)
    except ProofError as error:
        raise AssertionError(f"{ranks} ranks: {error}") from error
    assert counts.rounds == 2 * (ranks - 1)

# on all ranks: use it like a built-in algorithm
name = pycoll.AlgorithmName("chain")
assert {"chain", "ring"} <= set(pycoll.algorithms("allreduce"))
vector = np.random.default_rng(rank).integers(0, 100, size=1000)
expected = np.empty_like(vector)
MPI.COMM_WORLD.Allreduce(vector, expected)
assert np.array_equal(pycoll.allreduce(vector, algorithm=name), expected)
if rank == 0:
    drawing = text(film(chain, 3))
    assert "rank 2" in drawing
    print(drawing)
    print(f"chain is proved for up to 12 ranks, and correct on {size}")
