"""A program of torch.distributed that names a backend."""

import sys
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import init_process_group, new_group

if len(sys.argv) > 1:
    init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
else:
    init_process_group()
value = torch.ones(3)
distributed.all_reduce(value)
group = new_group([0, 1], backend="gloo")
distributed.all_reduce(value, group=group)
assert (value == 4).all()
mesh = distributed.init_device_mesh("cpu", (2,))
names = {distributed.get_backend(each) for each in (None, group, mesh.get_group())}
if distributed.get_rank() == 0:
    print("backends", names)
distributed.destroy_process_group()
