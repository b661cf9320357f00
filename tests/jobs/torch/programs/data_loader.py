"""Workers of a DataLoader try to initialize a process group."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from pycoll.torch import empty  # noqa: F401

# isort: split
from mpi4py import MPI  # which pycoll.torch keeps from initializing MPI in workers


class Errors(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        try:
            dist.init_process_group("pycoll", init_method="mpi://")
        except (RuntimeError, ValueError) as error:
            return f"{number} {error}"


def main():
    dist.init_process_group("pycoll")
    for method in ("fork", "spawn", "forkserver"):
        total, found = torch.ones(1), []
        for batch in DataLoader(Errors(), num_workers=1, multiprocessing_context=method):
            found += batch
            dist.all_reduce(total)
        assert [int(text[0]) for text in found] == [0, 1, 2, 3] and total == dist.get_world_size() ** 4
        print(method, found[0], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
else:
    print("imported again, MPI initialized:", MPI.Is_initialized())
