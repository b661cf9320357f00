"""After ranks were killed, all others raise RankFailed in their collective, and only that communicator ends."""

import pytest

from tests.launch import run

from .test_attach_revoke import ULFM, fault_tolerant

PROGRAM = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
import pycoll

form, dead = sys.argv[1], [int(rank) for rank in sys.argv[2].split(",")]
comm = pycoll.Comm(MPI.COMM_WORLD.Dup())
rank, size = comm.rank, comm.size
x, y = pycoll.empty((2, 5000), comm=comm) if form == "registered" else np.empty((2, 5000))
x[:], z = 1, np.ones(3)
persistent = pycoll.allreduce_init(x, y, comm=comm, algorithm="ring") if form == "persistent" else None

def started():
    persistent.Start()
    persistent.Wait()

def polled():
    request = pycoll.iallreduce(x, y, comm=comm)
    while not request.Test():
        pass

calls = {
    "blocking": lambda: pycoll.allreduce(x, y, comm=comm, algorithm="ring"),
    "tree": lambda: pycoll.allreduce(x, y, comm=comm, algorithm="tree"),
    "nonblocking": lambda: pycoll.iallreduce(x, y, comm=comm).Wait(),
    "polled": polled,
    "persistent": started,
    "registered": lambda: pycoll.allreduce(x, y, comm=comm),
    "bcast": lambda: pycoll.bcast(x, root=0, comm=comm),
    "barrier": lambda: pycoll.barrier(comm=comm),
    "drop-in": lambda: comm.Allreduce(z, z.copy()),
    "native": lambda: comm.Allreduce(x, y, algorithm="native"),
}
call = calls[form]
call()
others = comm.Split(rank in dead, rank)
pids = comm.allgather(os.getpid())
comm.Barrier()
if rank == max({*range(size)} - {*dead}):
    time.sleep(0.1 * float(sys.argv[3]))
    for each in dead:
        os.kill(pids[each], signal.SIGKILL)
killed = time.monotonic()
try:
    while time.monotonic() < killed + 20:
        before = time.monotonic()
        call()
    raise SystemExit("no error")
except pycoll.RankFailed as error:
    assert time.monotonic() - before < 1 + 0.1 * float(sys.argv[3]), time.monotonic() - before
    assert error.ranks and set(error.ranks) <= set(dead), error.ranks
    assert error.Get_error_class() == MPI.ERR_PROC_FAILED
    assert f"rank {error.ranks[0]} has failed" in str(error) or f"ranks {error.ranks[0]}, " in str(error)
for again in (call, calls["blocking"], calls["barrier"]):
    try:
        again()
    except pycoll.RankFailed as error:
        assert "cannot be used any more" in str(error), error
    else:
        raise SystemExit("a communicator was used after a failure")
assert others.allreduce(1) == size - len(dead)
w = np.empty(3)
others.Allreduce(z, w)
assert w[0] == size - len(dead)
alive = comm.Shrink()
alive.Allreduce(z, w)
assert w[0] == alive.size == size - len(dead) and type(alive) is pycoll.Comm
pycoll.allreduce(np.ones(9000), comm=alive, algorithm="ring")
print("rank", rank, "went on", flush=True)
alive.Barrier()
os._exit(0)  # after a failure MPI_Finalize of Open MPI hangs now and then, without pycoll too
"""

FORMS = (
    "blocking",
    "tree",
    "nonblocking",
    "polled",
    "persistent",
    "registered",
    "bcast",
    "barrier",
    "drop-in",
    "native",
)


@pytest.fixture(autouse=True)
def _ulfm():
    if not fault_tolerant():
        pytest.skip("this MPI cannot go on after a rank has died (mpiexec has no --with-ft ulfm)")


@pytest.mark.parametrize("form", FORMS)
def test_all_others_raise_rank_failed(form):
    check(4, form, (2,))


@pytest.mark.parametrize("dead", [(0,), (1, 2), (0, 3)])
def test_the_first_rank_or_several_ranks(dead):
    check(4, "blocking", dead)


FIRST = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
import pycoll

comm = MPI.COMM_WORLD
if sys.argv[1] == "split":
    comm = pycoll.Comm(comm)
comm.Barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    comm.Split(0) if sys.argv[1] == "split" else pycoll.allreduce(np.ones(3))
except pycoll.RankFailed as error:
    assert 1 in error.ranks, error  # and perhaps a rank that has ended its program already
    print("rank", comm.rank, "names it", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("call", ["first", "split"])
def test_calls_that_create_communicators(call):
    job = run(3, ["-c", FIRST, call], options=ULFM)
    assert not job.timed_out and job.output.count("names it") == 2, job.output


def check(ranks, form, dead):
    job = run(ranks, ["-c", PROGRAM, form, ",".join(map(str, dead)), "1"], options=ULFM)
    assert not job.timed_out and job.left == [], job.output
    for rank in set(range(ranks)) - set(dead):
        assert f"rank {rank} went on" in job.output, job.output
