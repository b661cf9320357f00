"""Training steps with DistributedDataParallel and fully_shard, on a perceptron and on a small transformer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, DEPTH = 1024, 6  # of the perceptron, 25 MB
MODEL, HEADS, LAYERS, TOKENS = 256, 4, 4, 32  # of the transformer, 13 MB
BATCH = 16  # samples per rank


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    """Return a perceptron, and inputs for it."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(*layers), torch.randn(BATCH, WIDTH)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Return the encoder of a transformer, and inputs for it."""
    layers = [nn.TransformerEncoderLayer(MODEL, HEADS, 4 * MODEL, dropout=0.0, batch_first=True) for _ in range(LAYERS)]
    return nn.Sequential(*layers), torch.randn(BATCH, TOKENS, MODEL)


def ddp(model: nn.Module, group: Any) -> nn.Module:
    """Average gradients during the backward pass."""
    return DistributedDataParallel(model, process_group=group)


def fsdp(model: nn.Module, group: Any) -> nn.Module:
    """Shard each layer."""
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(make: Callable[[], Any], shared: Callable[..., nn.Module], group: Any) -> Callable[[], object]:
    """Return a function that makes a training step on a new model whose parameters the ranks of the group share."""
    torch.manual_seed(0)
    model, inputs = make()
    model = shared(model, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return train


MODELS = {"mlp": perceptron, "transformer": transformer}
DRIVERS = {"ddp": ddp, "fully_shard": fsdp}
STEPS = {
    f"{driver}_{model}": partial(step, make, shared)
    for driver, shared in DRIVERS.items()
    for model, make in MODELS.items()
}


def parameter_bytes(name: str) -> int:
    """Return the size of the parameters of a step's model."""
    model, _ = STEPS[name].args[0]()
    return sum(parameter.numel() * parameter.itemsize for parameter in model.parameters())
