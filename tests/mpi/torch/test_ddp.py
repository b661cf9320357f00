"""DistributedDataParallel on ranks that have different numbers of batches."""

import time

import pytest

from tests.mpi.native import RANK, SIZE

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

pytestmark = pytest.mark.mpi


def test_gradients_are_divided_by_the_number_of_ranks_that_still_train(world):
    layer = torch.nn.Linear(1, 1, bias=False)
    model = torch.nn.parallel.DistributedDataParallel(layer)
    with model.join(divide_by_initial_world_size=False):
        for step in range(RANK + 1):
            layer.weight.grad = None
            (model(torch.ones(1, 1)) * (RANK + 1)).sum().backward()
            training = range(step, SIZE)
            assert layer.weight.grad.item() == pytest.approx(sum(rank + 1 for rank in training) / len(training))


def test_power_sgd_with_many_buckets(world):
    """Its callbacks start collectives; those of several buckets must start them in the same order on all ranks."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(48, 48) for _ in range(8)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for layer in layers:
        layer.weight.register_hook(lambda gradient: time.sleep(0.002 * RANK))
    for _ in range(10):
        model.zero_grad()
        model(torch.randn(8, 48)).square().sum().backward()
    mine = torch.cat([each.grad.flatten() for each in model.parameters()])
    first = mine.clone()
    torch.distributed.broadcast(first, 0)
    assert torch.equal(mine, first)


def test_a_hook_that_is_not_callable_is_refused_as_torch_refuses_it(world):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match="must be callable"):
        model.register_comm_hook({}, {})
