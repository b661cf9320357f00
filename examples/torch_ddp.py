"""Train a PyTorch model with torch.nn.parallel.DistributedDataParallel on MPI.

Run it with ``mpiexec -n 4 python examples/torch_ddp.py``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import pycoll
import pycoll.torch

STEPS, BATCH = 60, 32  # samples per rank


def batch(step: int, who: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random points in a square, and whether each point is in a circle."""
    random = torch.Generator().manual_seed(step * 1000 + who)
    points = 2 * torch.rand(BATCH, 2, generator=random) - 1
    return points, (points.square().sum(1, keepdim=True) < 0.6).float()


class Batches(Dataset):
    """The batches of some ranks, joined; workers of a DataLoader make them."""

    def __init__(self, whose: list[int]) -> None:
        self.whose = whose

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> list[torch.Tensor]:
        return [torch.cat(parts) for parts in zip(*(batch(step, who) for who in self.whose))]


def train(model: nn.Module, whose: list[int]) -> tuple[float, float]:
    """Train with the batches of some ranks; return the first and the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for points, inside in DataLoader(Batches(whose), batch_size=None, num_workers=2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), inside)
        loss.backward()  # DDP averages the gradients meanwhile
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def network() -> nn.Module:
    """Return a network with the same initial parameters on all ranks."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))


def main() -> None:
    """Train, and compare the result with that of one process."""
    pycoll.abort_on_exception()
    dist.init_process_group("pycoll")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network())
    first, last = train(model, [rank])

    # one process with the batches of all ranks computes the same parameters
    alone = network()
    train(alone, list(range(size)))
    difference = max((a - b).abs().max().item() for a, b in zip(model.parameters(), alone.parameters()))
    assert difference < 1e-3 and last < first / 2, (difference, first, last)
    if rank == 0:
        print(f"loss {first:.3f} -> {last:.3f}; difference from one process {difference:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":  # workers that are not forked import this file
    main()
