"""An all-reduce on a number of ranks in process groups that are made one after another."""

import sys

import torch
import torch.distributed as dist

import pycoll.torch  # noqa: F401

ranks, backend, *method = sys.argv[1:]
for _ in range(2):
    dist.init_process_group(backend, init_method=method[0] if method else None)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size() == int(ranks)
    dist.destroy_process_group()
print("done")
