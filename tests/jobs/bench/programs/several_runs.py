"""Run a module with each list of options, and print its exit codes."""

import json
import runpy
import sys

from mpi4py import MPI

sys.stderr = sys.stdout  # so that the order is kept
name, cases = json.loads(sys.argv[1])
for options in cases:
    sys.argv[1:] = options
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    if MPI.COMM_WORLD.rank == 0:
        print(f"\n=== {code}", flush=True)
