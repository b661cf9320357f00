"""Find two mistakes: ranks that pass mismatched arguments to a collective, and a rank that does not call it.

Run it with ``mpiexec -n 2 python examples/checks.py``.  Other programs need no change: set PYCOLL_CHECK and
PYCOLL_TIMEOUT in the environment.
"""

import os

os.environ["PYCOLL_CHECK"] = "1"  # before pycoll is imported
os.environ["PYCOLL_TIMEOUT"] = "2"  # seconds

import numpy as np
from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
comm = MPI.COMM_WORLD
assert comm.size > 1, "this example needs at least two ranks"
pycoll.attach(comm)

# PYCOLL_CHECK: the last rank has a shorter vector; all ranks get the error
vector = np.ones(10 if comm.rank == comm.size - 1 else 20)
try:
    pycoll.allreduce(vector)
except pycoll.MismatchError as error:
    mismatch = str(error)
else:
    raise AssertionError("PYCOLL_CHECK must detect different lengths")
assert str(comm.size - 1) in mismatch

# PYCOLL_TIMEOUT: the last rank does not call the barrier; the others get an error that names it
part = comm.Dup()
pycoll.attach(part)
timeout = ""
if comm.rank != comm.size - 1:
    try:
        pycoll.barrier(comm=part)
    except pycoll.CollectiveTimeout as error:
        timeout = str(error)
    assert "barrier" in timeout
comm.Barrier()

# other communicators still work
assert pycoll.allreduce(np.ones(3))[0] == comm.size
if comm.rank == 0:
    print(f"MismatchError: {mismatch}")
    print(f"CollectiveTimeout: {timeout}")
