"""A communicator is revoked while all ranks live."""

import numpy as np
from mpi4py import MPI


def refused(call):
    try:
        call()
    except MPI.Exception as error:
        return error.Get_error_class() == MPI.ERR_REVOKED
    return False


comm = MPI.COMM_WORLD.Dup()
x, y = np.ones(3), np.zeros(3)
request, persistent = comm.Iallreduce(x, y), comm.Allreduce_init(x, y)
request.Wait()
MPI.COMM_WORLD.Barrier()
comm.Revoke()
assert comm.Is_revoked()
assert refused(comm.Barrier) and refused(comm.Dup) and refused(lambda: comm.Allreduce(x, y))
assert refused(lambda: comm.Iallreduce(x, y).Wait())
assert refused(lambda: (persistent.Start(), persistent.Wait()))
again = comm.Shrink()
comm.Free()
again.Allreduce(x, y)
assert y[0] == again.size == MPI.COMM_WORLD.size
again.Free()
print("went on", flush=True)
