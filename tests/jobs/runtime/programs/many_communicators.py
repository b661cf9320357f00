"""Create communicators until MPI has none left."""

import numpy as np
from mpi4py import MPI

import pycoll

comm, kept = pycoll.Comm(MPI.COMM_WORLD), []
if "MPICH" not in MPI.Get_library_version():
    raise SystemExit("not MPICH")
try:
    while len(kept) < 2100:
        kept.append(comm.Split(0))
except MPI.Exception as error:
    print(len(kept), "that were not used;", error)
while kept:
    kept.pop().Free()
try:
    while len(kept) < 2100:
        child = comm.Split(0)
        child.Barrier()
        kept.append(child)
except MPI.Exception as error:
    print(len(kept), "communicators;", error)
    kept.append(child)
    while kept:
        kept.pop().Free()
    for _ in range(10):
        result = np.zeros(1)
        child = comm.Split(0)
        child.Allreduce(np.ones(1), result)
        assert result[0] == comm.size
        child.Free()
    print("and again")
