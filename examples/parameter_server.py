"""Train with a parameter server, synchronously and with bounded staleness.  The last rank is the server.

Run it with ``mpiexec -n 3 python examples/parameter_server.py`` (at least 2 ranks).
"""

import time
from functools import partial

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, ParameterServer

STEPS, UNKNOWNS, STALENESS = 100, 10, 3

pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
assert size > 1, "this example needs a server and at least one worker"
truth = np.random.default_rng(0).normal(size=UNKNOWNS)


def gradient(x: np.ndarray, step: int, who: int) -> np.ndarray:
    """Return the gradient of a least-squares problem on the batch of one worker and step."""
    matrix = np.random.default_rng([step, who]).normal(size=(20, UNKNOWNS))
    return matrix.T @ (matrix @ (x - truth)) / len(matrix)


def train(mode: str, staleness: int = 0) -> tuple[np.ndarray, int]:
    """Train; return the parameters, and the maximum number of steps by which this worker was behind."""
    parameters = {"x": np.zeros(UNKNOWNS)}
    with ParameterServer(parameters, optimizer=partial(SGD, lr=0.1), mode=mode, staleness=staleness) as ps:
        behind = [0]
        if ps.roles.works:
            for step in range(STEPS):
                if rank == 0 and step % 10 == 0:
                    time.sleep(2e-3)  # a worker that is slow at times
                ps.step({"x": gradient(parameters["x"], step, rank)})
            behind = ps.staleness[:]
        else:
            ps.serve()
        ps.finish()  # afterwards, all ranks have the final parameters
    return parameters["x"], max(behind)


synchronous, behind = train("sync")
assert behind == 0
alone = np.zeros(UNKNOWNS)
for step in range(STEPS):
    alone -= 0.1 * np.mean([gradient(alone, step, who) for who in range(size - 1)], axis=0)
assert np.allclose(synchronous, alone)  # one process with the batches of all workers computes the same

bounded, behind = train("bounded", STALENESS)
most = int(pycoll.allreduce(np.array([behind]), op="max")[0])
assert most <= STALENESS and np.abs(bounded - truth).max() < 1e-2
if rank == 0:
    print(f"sync: error {np.abs(synchronous - truth).max():.1e}, the same as one process")
    print(f"bounded: error {np.abs(bounded - truth).max():.1e}, at most {most} of {STALENESS} steps behind")
