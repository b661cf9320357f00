"""Print what pycoll.explain returns on each rank."""

import argparse
import os
import warnings

import numpy as np
from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("nbytes", type=int)
parser.add_argument("--allocate", action="store_true", help="allocate registered memory first")
parser.add_argument("--tuning", help="tuning file of rank 1")
options = parser.parse_args()
comm = MPI.COMM_WORLD
if options.tuning and comm.rank == 1:
    os.environ["PYCOLL_TUNING"] = options.tuning

import pycoll  # reads the environment

if options.allocate:
    registered = pycoll.empty(1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    one = pycoll.explain("allreduce", nbytes=options.nbytes)
assert all(warning.filename == __file__ for warning in caught), "a warning shows the line of this program"
pycoll.allreduce(np.ones(4))
explanations = comm.gather((one.algorithm, one.reason, one.tuning, [str(warning.message) for warning in caught]))
for rank, explanation in enumerate(explanations or []):
    print("rank", rank, *explanation)
half = pycoll.Comm(comm).Split(comm.rank == 0)
assert half.size == comm.size or pycoll.explain("bcast", nbytes=8, comm=half).reason == "by the rules for its size"
