"""Train a linear model with DistributedDataParallel; print the backend, the number of ranks and hosts, and the loss."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pycoll.torch  # noqa: F401  (registers the backend)

dist.init_process_group("pycoll")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    inputs = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    hosts = dist.get_world_size() // int(os.environ["LOCAL_WORLD_SIZE"])
    print(f"{dist.get_backend()}: {dist.get_world_size()} ranks, {hosts} hosts, small loss: {loss.item() < 0.1}")
dist.destroy_process_group()
