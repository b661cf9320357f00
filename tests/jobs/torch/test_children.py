"""Processes that multiprocessing starts in a program of pycoll.torch, for example workers of a DataLoader."""

import pytest

from tests.launch import run

pytest.importorskip("torch", reason="torch is not installed")

LOADING = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import pycoll.torch
from pycoll.torch import empty
from mpi4py import MPI

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
"""


def test_workers_of_a_data_loader_do_not_initialize_mpi(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(LOADING)
    job = run(2, [str(path)], environment={"PYCOLL_WATCH": str(tmp_path / "watch")})
    assert job.code == 0 and job.left == [], job.output
    assert job.output.count("fork 0 trying to initialize") == 2
    for method in ("spawn", "forkserver"):
        text = f"{method} 0 this process was started by multiprocessing, and is not a rank of MPI; start each rank"
        assert job.output.count(text) == 2
    assert "MPI initialized: False" in job.output and "MPI initialized: True" not in job.output
