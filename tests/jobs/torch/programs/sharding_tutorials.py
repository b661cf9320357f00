"""What the examples of PyTorch for FSDP2, tensor and sequence parallelism do, with a backend.

After github.com/pytorch/examples, distributed/FSDP2 and distributed/tensor_parallelism, on the CPU.
"""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import pycoll.torch  # noqa: F401

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
TO_ALL = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def sharded(layers: int = 4, ahead: int = 2) -> nn.Sequential:
    """Return a model with sharded layers that are gathered ahead of their use, in bfloat16."""
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(layers)])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    for index, layer in enumerate(model):
        assert isinstance(layer, FSDPModule)
        layer.set_modules_to_forward_prefetch([*model[index + 1 : index + 1 + ahead]])  # type: ignore[list-item]
        layer.set_modules_to_backward_prefetch([*model[max(0, index - ahead) : index]][::-1])  # type: ignore[list-item]
    model.to_empty(device="cpu")
    for each in model.modules():
        if isinstance(each, nn.Linear):
            each.reset_parameters()
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """Train, and return the norms of the gradients."""
    norms = []
    for step in steps:
        inputs = torch.rand(16, 32, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        model(inputs).square().mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        norms.append((norm.full_tensor() if isinstance(norm, DTensor) else norm).item())
        optimizer.step()
        optimizer.zero_grad()
    return norms


def fsdp() -> None:
    """Train a sharded model, load its checkpoint into another one, and go on with both."""
    torch.manual_seed(0)
    model = sharded()
    assert all(parameter.placements == (Shard(0),) for parameter in model.parameters())  # type: ignore[attr-defined]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    norms = train(model, optimizer, range(5))
    state = get_model_state_dict(model, options=WHOLE), get_optimizer_state_dict(model, optimizer, options=WHOLE)

    again = sharded()
    new = torch.optim.Adam(again.parameters(), lr=1e-2)
    set_model_state_dict(again, state[0], options=TO_ALL)
    set_optimizer_state_dict(again, new, copy.deepcopy(state[1]), options=TO_ALL)  # else it shares the steps of Adam
    resumed = train(again, new, range(5, 8))
    assert resumed == train(model, optimizer, range(5, 8))
    if dist.get_rank() == 0:
        print("fsdp", norms, resumed)


def tensor_parallel(name: str, first: ColwiseParallel, second: RowwiseParallel) -> None:
    """Divide two layers by columns and rows, and train with the same inputs on all ranks."""
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    model = parallelize_module(model, mesh, {"0": first, "2": second})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    outputs = []
    for step in range(5):
        inputs = torch.rand(16, 32, generator=torch.Generator().manual_seed(step))
        rows = inputs.chunk(mesh.size())[mesh.get_local_rank()] if name == "sequence" else inputs
        output = model(rows)
        output.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        total = output.detach().sum()
        if name == "sequence":
            dist.all_reduce(total)
        outputs.append(total.item())
    if mesh.get_rank() == 0:
        print(name, outputs)


dist.init_process_group(sys.argv[1])
fsdp()
tensor_parallel("tensor", ColwiseParallel(), RowwiseParallel())
tensor_parallel("sequence", ColwiseParallel(input_layouts=Shard(0)), RowwiseParallel(output_layouts=Shard(0)))
dist.destroy_process_group()
