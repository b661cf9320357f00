"""Each rank tries to make a process group of its own."""

import torch.distributed as dist

import pycoll.torch  # noqa: F401

try:
    dist.init_process_group("pycoll", rank=0, world_size=1)
except RuntimeError as error:
    print(error)
