"""Importing pycoll.torch sets the variables that the launcher knows, and leaves MPI alone."""

import os
import sys

import torch
import torch.distributed as dist

import pycoll.torch  # noqa: F401

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
before = [os.environ[name] for name in NAMES]
assert "mpi4py.MPI" not in sys.modules and "MASTER_ADDR" not in os.environ
dist.init_process_group("pycoll")
assert [os.environ[name] for name in NAMES] == before and os.environ["MASTER_ADDR"]
assert before[:2] == [str(dist.get_rank()), str(dist.get_world_size())]
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item(), *before)
dist.destroy_process_group()
