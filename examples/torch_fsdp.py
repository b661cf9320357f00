"""Train a PyTorch model with fully_shard on MPI: each rank keeps a shard of each layer.

Run it with ``mpiexec -n 4 python examples/torch_fsdp.py``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pycoll
import pycoll.torch

LAYERS, WIDTH, STEPS, BATCH = 4, 32, 100, 32  # samples per rank

pycoll.abort_on_exception()
dist.init_process_group("pycoll")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1)  # the same model and target on all ranks
target = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))
elements = sum(parameter.numel() for parameter in model.parameters())

mesh = init_device_mesh("cpu", (size,))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)  # its parameters are gathered before it computes, and then freed
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

losses = []
for step in range(STEPS):
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step * 1000 + rank))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs @ target)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())

kept = sum(parameter.to_local().numel() for parameter in model.parameters())
whole = [parameter.full_tensor() for parameter in model.parameters()]  # collective: all ranks call it
assert sum(tensor.numel() for tensor in whole) == elements
kept_by_all = torch.tensor(kept)
dist.all_reduce(kept_by_all)
assert kept_by_all == elements
mean = torch.stack([losses[0], losses[-1]])
dist.all_reduce(mean, dist.ReduceOp.AVG)
assert mean[1] < mean[0] / 2, mean
if rank == 0:
    print(f"loss {mean[0]:.2f} -> {mean[1]:.2f}; rank 0 keeps {kept} of {elements} parameters")
dist.destroy_process_group()
