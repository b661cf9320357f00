"""Print the backend, the number of ranks and the options of this program on rank 0."""

import sys

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print(dist.get_backend(), dist.get_world_size(), sys.argv[1:])
dist.destroy_process_group()
