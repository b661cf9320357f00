"""Start a job like a notebook, from a process that has imported the backend or used it."""

import sys
from pathlib import Path

import torch.distributed as dist

import pycoll.torch  # noqa: F401
from tests.launch import run

if "used" in sys.argv[1:]:
    dist.init_process_group("pycoll")
    dist.barrier()
    dist.destroy_process_group()
job = run(2, [Path(__file__).with_name("all_reduce.py"), "2", "pycoll"], 60)
assert job.code == 0, job.output
