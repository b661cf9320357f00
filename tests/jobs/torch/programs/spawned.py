"""Processes of torch.multiprocessing beside a process group of pycoll have a group of their own, with gloo."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.utils.data import DataLoader, TensorDataset

import pycoll
import pycoll.torch


def child(number: int, path: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=number, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    Path(path, str(number)).write_text(str(total.item()))
    dist.destroy_process_group()
    for call in (pycoll.allreduce, pycoll.iallreduce, pycoll.allreduce_init, lambda array: pycoll.send(array, 0)):
        try:
            call(np.ones(1))
        except RuntimeError as error:
            assert "a process that multiprocessing has started is not a rank" in str(error), error
        else:
            raise AssertionError("a child has communicated")


def main() -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(8.0)), num_workers=2, persistent_workers=True, multiprocessing_context="spawn"
    )
    read = sum(batch.item() for _ in range(2) for (batch,) in loader)  # before MPI is initialized
    dist.init_process_group("pycoll")
    with tempfile.TemporaryDirectory() as path:
        torch.multiprocessing.spawn(child, (path,), nprocs=2)
        found = [Path(path, number).read_text() for number in "01"]
    read += sum(batch.item() for _ in range(2) for (batch,) in loader)
    total = torch.tensor(read)
    dist.all_reduce(total)
    print("read", total.item(), *found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
