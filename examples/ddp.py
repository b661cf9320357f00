"""Train a two-layer network with DistributedDataParallel, which averages buckets during the backward pass.

Run it with ``mpiexec -n 4 python examples/ddp.py``.
"""

from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, DistributedDataParallel

STEPS, BATCH = 60, 32  # samples per rank


def batch(step: int, who: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random points in a square, and whether each point is in a circle."""
    points = np.random.default_rng([step, who]).uniform(-1, 1, size=(BATCH, 2))
    return points, (np.square(points).sum(axis=1, keepdims=True) < 0.6).astype(float)


def initial() -> dict[str, np.ndarray]:
    """Return the initial parameters in forward order."""
    random = np.random.default_rng(7)
    return {
        "w1": random.normal(size=(2, 64)),
        "b1": np.zeros(64),
        "w2": random.normal(size=(64, 1)) / 8,
        "b2": np.zeros(1),
    }


def backward(
    parameters: dict[str, np.ndarray], points: np.ndarray, inside: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the gradient of each parameter as soon as it is computed, the last parameter first; then the loss."""
    hidden = np.maximum(points @ parameters["w1"] + parameters["b1"], 0)
    error = hidden @ parameters["w2"] + parameters["b2"] - inside
    yield "b2", error.mean(axis=0)
    yield "w2", hidden.T @ error / len(points)
    through = (error @ parameters["w2"].T) * (hidden > 0)
    yield "b1", through.mean(axis=0)
    yield "w1", points.T @ through / len(points)
    yield "loss", np.square(error).mean() / 2


pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
parameters = initial()
losses = []
with DistributedDataParallel(parameters, bucket_bytes=600) as ddp:  # small buckets, for this small network
    optimizer = SGD(parameters, lr=0.2, momentum=0.9)
    for step in range(STEPS):
        for name, value in backward(parameters, *batch(step, rank)):
            if name == "loss":
                losses.append(value)
            else:
                ddp.ready(name, value)  # full buckets are averaged while the next gradients are computed
        optimizer.step(ddp.synchronize())

# one process with the batches of all ranks computes the same parameters
alone = initial()
optimizer = SGD(alone, lr=0.2, momentum=0.9)
for step in range(STEPS):
    points, inside = map(np.concatenate, zip(*(batch(step, who) for who in range(size))))
    *gradients, _ = backward(alone, points, inside)
    optimizer.step(dict(gradients))
difference = max(np.abs(parameters[name] - alone[name]).max() for name in alone)
assert difference < 1e-9 and np.mean(losses[-5:]) < np.mean(losses[:5]) / 2
if rank == 0:
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; difference from one process {difference:.1e}")
