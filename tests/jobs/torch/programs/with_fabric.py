"""Train with Lightning Fabric and a backend, and print the loss."""

import sys
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import MPIEnvironment
from lightning_fabric.strategies import DDPStrategy
from mpi4py import MPI

import pycoll.torch  # noqa: F401

fabric = Fabric(
    accelerator="cpu",
    strategy=DDPStrategy(process_group_backend=sys.argv[1]),
    devices=MPI.COMM_WORLD.size,
    plugins=MPIEnvironment(),
)
fabric.launch()
assert dist.get_backend() == "pycoll" and fabric.world_size == MPI.COMM_WORLD.size

torch.manual_seed(fabric.global_rank)
inputs = torch.randn(64, 3)
model = torch.nn.Linear(3, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.2))
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    fabric.backward(loss)
    optimizer.step()
losses: Any = fabric.all_gather(loss.detach())
weights: Any = fabric.all_gather(next(model.parameters()).detach())
assert len(losses) == fabric.world_size and losses.max() < 1e-3, losses
assert (weights == weights[0]).all()
fabric.barrier()
fabric.print("loss", float(losses.max()))
dist.destroy_process_group()
