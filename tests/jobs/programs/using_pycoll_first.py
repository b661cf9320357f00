"""Use pycoll before MPI is imported, as the argument says."""

import sys

import pycoll
import pycoll.parallel

if sys.argv[1] == "abort_on_exception":
    pycoll.abort_on_exception()
elif sys.argv[1] == "attach":
    pycoll.attach()
else:
    print(pycoll.parallel.SGD)

from mpi4py import MPI

assert isinstance(MPI.COMM_WORLD, pycoll.Comm)
print("sum", MPI.COMM_WORLD.allreduce(1))
