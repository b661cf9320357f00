"""Train with Accelerate and a backend, and print the loss."""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import pycoll.torch  # noqa: F401

dist.init_process_group(sys.argv[1])
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
assert accelerator.num_processes == dist.get_world_size() and dist.get_backend() == "pycoll"

torch.manual_seed(0)
inputs = torch.randn(64, 3)
data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
model = torch.nn.Linear(3, 1)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.2), data)
for _ in range(20):
    for features, targets in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(features), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
losses = accelerator.gather(loss.detach().reshape(1))
weights = accelerator.gather(next(model.parameters()).detach())
assert len(losses) == dist.get_world_size() and losses.max() < 1e-3, losses
assert (weights == weights[0]).all()
accelerator.wait_for_everyone()
accelerator.print("loss", float(losses.max()))
accelerator.end_training()
