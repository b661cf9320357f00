"""Training with the parallel modules of torch: the same parameters, whether with pycoll or with gloo."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import pycoll.trace

pytestmark = pytest.mark.mpi


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.LayerNorm(48), nn.Linear(48, 12))


def batch(step, seed=None):
    generator = torch.Generator().manual_seed(100 * step + (dist.get_rank() if seed is None else seed))
    return torch.randn(12, 24, generator=generator), torch.randint(0, 12, (12,), generator=generator)


def train(module, optimizer, steps=4, seed=None):
    for step in range(steps):
        inputs, targets = batch(step, seed)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()


def sgd(module):
    return torch.optim.SGD(module.parameters(), 0.1)


def parameters(module):
    found = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in module.parameters()]
    return [each.detach().clone() for each in found]


OPTIONS = {
    "plain": {},
    "static graph": {"static_graph": True},
    "unused parameters": {"find_unused_parameters": True},
    "views": {"gradient_as_bucket_view": True},
    "small buckets": {"bucket_cap_mb": 0.002},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_ddp(compare, options):
    def case(group):
        module = DistributedDataParallel(model(), process_group=group, **options)
        train(module, sgd(module))
        return parameters(module)

    compare(case)


@pytest.mark.parametrize("builtin", [False, True])
def test_ddp_with_a_hook_for_half_precision(compare, builtin):
    def case(group):
        module = DistributedDataParallel(model(), process_group=group)
        if builtin:
            module._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        else:
            module.register_comm_hook(group, default_hooks.fp16_compress_hook)
        train(module, sgd(module))
        return parameters(module) if dist.get_world_size() == 2 else []

    compare(case)


def test_ddp_with_power_sgd(compare):
    """Its callbacks start collectives and wait for them."""

    def case(group):
        module = DistributedDataParallel(model(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, 2, start_powerSGD_iter=2, min_compression_rate=1)
        module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(module, sgd(module))
        return parameters(module) if dist.get_world_size() == 2 else []

    compare(case)


def test_ddp_with_uneven_inputs(compare):
    def case(group):
        module = DistributedDataParallel(model(), process_group=group)
        with module.join():
            train(module, sgd(module), steps=2 + dist.get_rank())
        return parameters(module)

    compare(case)


def test_zero_redundancy_optimizer(compare):
    def case(group):
        module = DistributedDataParallel(model(), process_group=group)
        train(module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, group, lr=0.01))
        return parameters(module)

    compare(case)


def test_fsdp1(compare):
    def case(group):
        module = FullyShardedDataParallel(model(), group, device_id=torch.device("cpu"))
        train(module, torch.optim.Adam(module.parameters(), lr=0.01))
        return parameters(module)

    compare(case)


def sharded(group):
    mesh = DeviceMesh.from_group(group, "cpu")
    module = model()
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def test_fully_shard(compare):
    def case(group):
        module = sharded(group)
        train(module, torch.optim.Adam(module.parameters(), lr=0.01))
        return parameters(module)

    compare(case)


def test_tensor_parallel(compare):
    def case(group):
        mesh, module = DeviceMesh.from_group(group, "cpu"), model()
        parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        train(module, sgd(module), seed=7)
        return parameters(module)

    compare(case)


def test_sequence_parallel(compare):
    from torch.distributed.tensor import Shard

    def case(group):
        mesh, module = DeviceMesh.from_group(group, "cpu"), model()
        plan = {
            "0": ColwiseParallel(),
            "2": RowwiseParallel(output_layouts=Shard(0)),
            "3": SequenceParallel(sequence_dim=0),
            "4": ColwiseParallel(input_layouts=Shard(0), output_layouts=torch.distributed.tensor.Replicate()),
        }
        parallelize_module(module, mesh, plan)
        train(module, sgd(module), seed=7)
        return parameters(module)

    compare(case)


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
def test_pipeline(compare, schedule):
    def case(group):
        rank, size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(rank)
        layer = nn.Linear(16, 16)
        stage = PipelineStage(layer, rank, size, torch.device("cpu"), group=group)
        runs = schedule(stage, 4, loss_fn=nn.functional.mse_loss)
        inputs, targets = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)).unbind()
        runs.step(*([inputs] if rank == 0 else []), **({"target": targets} if rank == size - 1 else {}))
        return [each.grad for each in layer.parameters()]

    compare(case)


def test_distributed_checkpoint(world, gloo, directory):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    module = sharded(world)
    train(module, sgd(module))
    expected = parameters(module)
    checkpoint.save(get_model_state_dict(module), checkpoint_id=directory / "step", process_group=world)
    other = sharded(world)
    state = get_model_state_dict(other)
    checkpoint.load(state, checkpoint_id=directory / "step", process_group=world)
    set_model_state_dict(other, state)
    assert all(map(torch.equal, parameters(other), expected))


def test_buckets_are_sent_during_the_backward_pass(world, directory):
    module = DistributedDataParallel(model(), bucket_cap_mb=0.002)

    def first_layer(gradient):
        with pycoll.trace.phase("first layer"):  # the last gradient that is computed
            return gradient

    module.module[0].weight.register_hook(first_layer)
    train(module, sgd(module), steps=2)
    dist.barrier()
    with pycoll.trace.trace(directory):
        train(module, sgd(module), steps=1)
    dist.barrier()
    events = json.loads((directory / "trace.json").read_text())["traceEvents"]
    for rank in range(dist.get_world_size()):
        mine = [event for event in events if event.get("pid") == rank and "ts" in event]
        (last,) = [event["ts"] for event in mine if event["name"] == "first layer"]
        assert min(event["ts"] for event in mine if event["name"].endswith(": all_reduce")) < last
