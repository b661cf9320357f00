"""A rank is killed; the others revoke and shrink the communicator."""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
rank, size = comm.rank, comm.size
x, y = np.ones(4), np.zeros(4)


def blocking(comm):
    comm.Allreduce(x, y)


def nonblocking(comm):
    comm.Iallreduce(x, y).Wait()


def persistent(comm):
    request = comm.Allreduce_init(x, y)
    request.Start()
    request.Wait()


def several(comm):
    first, second = comm.Iallreduce(x, y), comm.Iallreduce(x, z)
    second.Wait()
    first.Wait()


z = np.zeros(4)
call = globals()[sys.argv[1]]
call(comm)
assert y[0] == size
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        call(comm)
except MPI.Exception as error:
    assert error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED), error
    comm.Revoke()
assert comm.Is_revoked()
alive = comm.Shrink()
for again in (call, blocking):
    try:
        again(comm)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_REVOKED, error
    else:
        raise AssertionError("a revoked communicator was used")
comm.Free()
assert type(alive) is type(MPI.COMM_WORLD) and alive.size == size - 1
alive.Ibarrier().Wait()
for form in (blocking, nonblocking, persistent):
    form(alive)
    assert y[0] == size - 1
half = alive.Split(alive.rank % 2)
half.Barrier()
half.Free()
again = alive.Dup()
alive.Free()
print("rank", rank, "went on", flush=True)
again.Barrier()
os._exit(0)  # after a failure MPI_Finalize of Open MPI hangs now and then, without pycoll too
