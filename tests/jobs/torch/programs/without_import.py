"""A program that does not import pycoll.torch: the entry point of the package is enough."""

import sys

import torch
import torch.distributed as dist

assert not {"pycoll.torch", "mpi4py"} & set(sys.modules)
dist.init_process_group(sys.argv[1])
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item(), type(dist.group.WORLD).__module__)
dist.destroy_process_group()
