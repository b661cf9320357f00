"""Sets the options of mpi4py given as arguments before MPI is imported."""

import sys

import mpi4py

for name, value in (option.split("=") for option in sys.argv[1:]):
    setattr(mpi4py.rc, name, {"True": True, "False": False}.get(value, value))
import numpy as np
from mpi4py import MPI
from mpi4py.MPI import COMM_SELF

comm = MPI.COMM_WORLD
print("initialized", MPI.Is_initialized())
if not MPI.Is_initialized():
    print("obtained", MPI.Init_thread(MPI.THREAD_FUNNELED) == MPI.THREAD_FUNNELED)
print("level", MPI.Query_thread(), "fatal", comm.Get_errhandler() == MPI.ERRORS_ARE_FATAL)
values, result = np.ones(5000), np.empty(5000)
for each in (comm, MPI.COMM_WORLD, COMM_SELF):
    each.Iallreduce(values, result).Wait()
    print("sum", result[0], each is MPI.COMM_WORLD, type(each) is type(comm))
request = comm.Allreduce_init(values, result)
request.Start()
request.Wait()
request.Free()
comm.Allreduce(values, result)
if mpi4py.rc.finalize is False:
    MPI.Finalize()
    print("finalized", MPI.Is_finalized())
