"""After a rank has been killed, the others revoke and shrink the communicator and continue, as with MPI collectives."""

import pytest

from tests.launch import run
from tests.quick import ULFM

pytestmark = pytest.mark.ulfm

PROGRAM = """
import os, signal, sys
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
"""

ALIVE = """
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
"""


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent", "several"])
def test_the_others_go_on(tmp_path, form):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    ring = {"PYCOLL_ALLREDUCE": "ring"}  # in the ring, rank 0 does not wait for a message from rank 2
    job = run(4, ["-m", "pycoll.run", str(path), form], environment=ring, options=ULFM)
    assert not job.timed_out and job.left == []
    for rank in (0, 1, 3):
        assert f"rank {rank} went on" in job.output


@pytest.mark.parametrize("ranks", [3, 1])
def test_a_communicator_that_is_revoked_while_all_live(tmp_path, ranks):
    path = tmp_path / "program.py"
    path.write_text(ALIVE)
    job = run(ranks, ["-m", "pycoll.run", str(path)], options=ULFM)
    assert not job.timed_out and job.output.count("went on") == ranks, job.output
