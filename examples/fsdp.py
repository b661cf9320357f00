"""Train with FullyShardedDataParallel: each rank keeps a shard of every layer, and layers are gathered when needed.

Run it with ``mpiexec -n 4 python examples/fsdp.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import Adam, FullyShardedDataParallel

LAYERS, WIDTH, STEPS, BATCH = 4, 32, 40, 16  # samples per rank


def initial() -> dict[str, np.ndarray]:
    """Return the parameters of a residual network.

    Parameters whose names are equal up to the last dot form a unit; here, a unit is a layer.
    """
    parameters: dict[str, np.ndarray] = {}
    for layer in range(LAYERS):
        weight = np.random.default_rng(layer).normal(size=(WIDTH, WIDTH)) / WIDTH
        parameters |= {f"layer{layer}.weight": weight, f"layer{layer}.bias": np.zeros(WIDTH)}
    return parameters


pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
target = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)
losses = []
with FullyShardedDataParallel(initial()) as fsdp:
    optimizer = Adam(fsdp.shards, lr=0.01)
    for step in range(STEPS):
        activations = [np.random.default_rng([step, rank]).normal(size=(BATCH, WIDTH))]
        wanted = activations[0] @ target
        for unit in range(LAYERS):
            with fsdp.forward(unit) as parameters:  # meanwhile, the next layer is gathered
                x = activations[-1]
                activations.append(x + x @ parameters[f"layer{unit}.weight"] + parameters[f"layer{unit}.bias"])
        error = (activations[-1] - wanted) / BATCH
        losses.append(float(np.square(error).sum() * BATCH / 2))
        for unit in reversed(range(LAYERS)):
            with fsdp.backward(unit) as parameters:
                fsdp.ready(f"layer{unit}.bias", error.sum(axis=0))
                fsdp.ready(f"layer{unit}.weight", activations[unit].T @ error)
                error = error + error @ parameters[f"layer{unit}.weight"].T
        optimizer.step(fsdp.synchronize())
    kept = sum(shard.size for shard in fsdp.shards.values())
    whole = fsdp.state_dict()  # collective: all ranks call it

elements = LAYERS * WIDTH * (WIDTH + 1)
assert sum(array.size for array in whole.values()) == elements
assert kept <= elements / size + LAYERS  # shards are padded by less than one element per layer
mean = pycoll.allreduce(np.array([losses[0], losses[-1]]), op="avg")
assert mean[1] < mean[0] / 4
if rank == 0:
    print(f"loss {mean[0]:.2f} -> {mean[1]:.2f}; rank 0 keeps {kept} of {elements} parameters")
