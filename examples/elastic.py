"""Fault-tolerant training: rank 1 kills itself halfway, if the MPI library lets the other ranks continue.

Run it with ``mpiexec --with-ft ulfm -n 4 python examples/elastic.py`` (Open MPI), or without this option.
"""

import os
import signal

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, FullyShardedDataParallel, elastic

STEPS, BATCH = 400, 60
FAILS = os.environ.get("OMPI_MCA_mpi_ft_enable") == "1" and MPI.COMM_WORLD.rank == 1  # noqa: SIM112
inputs = np.random.default_rng(0).normal(size=(1000, 3))
targets = inputs @ [[1.0], [2.0], [3.0]]


def make(comm: pycoll.Comm) -> tuple[FullyShardedDataParallel, SGD]:
    """Return the driver and the optimizer on a communicator."""
    fsdp = FullyShardedDataParallel({"weight": np.zeros((3, 1))}, comm=comm)
    return fsdp, SGD(fsdp.shards, lr=0.05, momentum=0.5)


def train(state: elastic.State) -> np.ndarray:
    """Train from the step of the state to the last one; return the weight."""
    fsdp, rank, size = state.driver, state.comm.rank, state.comm.size
    assert isinstance(fsdp, FullyShardedDataParallel) and state.optimizer
    if state.recoveries and rank == 0:
        print(f"{size} ranks go on after step {state.step}")
    while state.step < STEPS:
        mine = np.arange(state.step * BATCH, (state.step + 1) * BATCH)[rank::size] % 1000
        with fsdp.forward(0) as parameters:
            error = inputs[mine] @ parameters["weight"] - targets[mine]
        if FAILS and state.step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        with fsdp.backward(0):
            fsdp.ready("weight", inputs[mine].T @ error / len(mine))
        state.optimizer.step(fsdp.synchronize())
        state.commit()
    weight: np.ndarray = fsdp.state_dict()["weight"]
    return weight


pycoll.abort_on_exception()
state = elastic.State(make)
weight = elastic.run(train, state)
if state.comm.rank == 0:
    print(f"weight {weight.ravel().round(4)} on {state.comm.size} ranks")
