"""torch.distributed on tensors in GPU memory: each collective against its definition, training against one process.

These tests need a GPU that PyTorch and CuPy can use.
"""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pycoll
import pycoll.torch

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TRIANGLE = SIZE * (SIZE + 1) // 2  # the sum of rank + 1
NUMBERS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int32, torch.int64]


@pytest.fixture(scope="module", autouse=True)
def world():
    """Initialize torch.distributed with pycoll, on the GPU of this rank."""
    torch.cuda.set_device(pycoll.select_device())
    dist.init_process_group("pycoll")
    yield
    dist.destroy_process_group()


def numbers(dtype, count=100_003):
    """Return small whole numbers, whose sums are exact."""
    return (torch.arange(count, device="cuda") % 7).to(dtype)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_reductions(dtype):
    given = numbers(dtype) * (RANK + 1)
    dist.all_reduce(given)
    assert torch.equal(given, numbers(dtype) * TRIANGLE)
    given = numbers(dtype).repeat(SIZE) * (RANK + 1)
    part = torch.empty_like(numbers(dtype))
    dist.reduce_scatter_tensor(part, given)
    assert torch.equal(part, numbers(dtype) * TRIANGLE)


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.bool, torch.uint8, torch.float8_e4m3fn], ids=str)
def test_moves(dtype):
    """All dtypes of torch can be moved, also those that CuPy does not have."""

    def block(number):
        return (numbers(torch.float32) + number).to(dtype)

    def same(found, expected):
        return torch.equal(found.view(torch.uint8), expected.view(torch.uint8))

    given = block(RANK)
    dist.broadcast(given, SIZE - 1)
    assert same(given, block(SIZE - 1))
    everyone = torch.cat([block(0)] * SIZE)
    dist.all_gather_into_tensor(everyone, block(RANK))
    assert same(everyone, torch.cat([block(rank) for rank in range(SIZE)]))
    dist.all_to_all_single(everyone, torch.cat([block(RANK + 8 * rank) for rank in range(SIZE)]))
    assert same(everyone, torch.cat([block(rank + 8 * RANK) for rank in range(SIZE)]))


def test_messages():
    given = torch.full((1000,), float(RANK), device="cuda")
    received = torch.empty_like(given)
    operations = [dist.P2POp(dist.isend, given, (RANK + 1) % SIZE), dist.P2POp(dist.irecv, received, (RANK - 1) % SIZE)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert bool((received == (RANK - 1) % SIZE).all())


def test_work_that_is_still_being_computed_on_a_stream():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in range(10):
            factor = torch.randn(1024, 1024, device="cuda")
            for _ in range(20):
                factor = factor @ factor / 32
            given = torch.full((1 << 20,), float(RANK + step), device="cuda")
            dist.all_reduce(given)
            assert bool((given == sum(rank + step for rank in range(SIZE))).all())


def test_many_works_at_a_time():
    tensors = [torch.full((1 << 16,), float(RANK + number), device="cuda") for number in range(20)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    for number, tensor in enumerate(tensors):
        assert bool((tensor == sum(rank + number for rank in range(SIZE))).all())


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()


def train(module, part):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in range(5):
        generator = torch.Generator("cuda").manual_seed(step)
        inputs = torch.randn(SIZE * 32, 64, device="cuda", generator=generator)
        optimizer.zero_grad()
        module(inputs[part]).pow(2).mean().backward()
        optimizer.step()
    return module


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_training_as_in_one_process(way):
    ours = model()
    if way == "ddp":
        ours = DistributedDataParallel(ours, device_ids=[torch.cuda.current_device()])
    else:
        for layer in (ours[0], ours[2], ours):
            fully_shard(layer)
    train(ours, slice(32 * RANK, 32 * (RANK + 1)))
    for mine, expected in zip(ours.parameters(), train(model(), slice(None)).parameters(), strict=True):
        whole = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
        torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-5)
