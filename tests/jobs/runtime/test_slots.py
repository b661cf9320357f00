"""Shared memory of a host: ranks that die, that do not call, signals, forks, and what is left behind."""

import shutil
import subprocess

import pytest

from tests.launch import run

from .interrupted import INTERRUPTED

START = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
import pycoll
from pycoll.runtime.host import why_not_shared as why_unusable

if why_unusable() and os.environ.get("PYCOLL_SHARED_MEMORY") != "0":
    print("no core:", why_unusable())
    sys.exit()
comm = pycoll.Comm(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
send, recv = np.full(COUNT, rank + 1.0), np.zeros(COUNT)
total = size * (size + 1) / 2
for _ in range(3):
    comm.Allreduce(send, recv)
comm.Barrier()
"""
KILLED = """
processes = comm.allgather(os.getpid())
if rank == size - 1:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    for _ in range(3):
        comm.Allreduce(send, recv)
except pycoll.RankFailed as error:
    print(f"rank {rank}: {error.ranks} after {time.monotonic() - start:.1f} s", flush=True)
    try:
        comm.Allreduce(send, recv)
    except pycoll.RankFailed:
        print("unusable", flush=True)
os._exit(0)
"""
MISSING = """
if rank:
    time.sleep(6.0)
else:
    for name in "Allreduce", "Bcast":
        try:
            comm.Allreduce(send, recv)
        except pycoll.CollectiveTimeout as error:
            print(error, flush=True)
os._exit(0)
"""
SIGNALS = (
    INTERRUPTED
    + """
numbers, interrupted = np.random.default_rng(rank), 0
deadline = time.monotonic() + 3
for calls in range(100_000):
    comm.Bcast(go := np.array([time.monotonic() < deadline]), 0)
    if not go[0]:
        break
    for op in MPI.SUM, "avg":
        if numbers.random() < 0.3:
            signal.setitimer(signal.ITIMER_REAL, numbers.random() * 3e-3)
        if rank == calls % size:
            time.sleep(1e-3)
        recv[:], done = 0, False
        while not done:
            try:
                armed[0] = True
                if not recv.any():  # the handler ran before the call, or the call is complete
                    comm.Allreduce(send, recv, op)
                armed[0] = False
                done = True
            except Interrupted:
                interrupted += 1
        assert (recv == (total / size if op == "avg" else total)).all(), (op, recv[0])
signal.setitimer(signal.ITIMER_REAL, 0)
counted = comm.allreduce(interrupted)
print("signals" if counted > 20 else f"only {counted}", "and calls" if calls > 50 else calls, flush=True)
"""
)
LONG_OBJECTS = (
    INTERRUPTED
    + """
mine = np.ones(300_000)
for call in (
    lambda: comm.allreduce(mine), lambda: comm.allgather({"a": mine}), lambda: comm.bcast([mine], 1),
    lambda: comm.allreduce(1, lambda a, b: a + b), lambda: comm.alltoall([mine] * size), lambda: comm.allreduce(1.5),
):
    if rank == 0:
        armed[0] = True
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    else:
        time.sleep(0.3)
    try:
        call()
        assert rank, "an exception was lost"
    except Interrupted:
        assert rank == 0
    assert comm.allgather(rank) == list(range(size))
print("signals", flush=True)
"""
)
FORKED = """
import multiprocessing
def forked():
    for call in (lambda: comm.allreduce(1), lambda: pycoll.bcast_object(1, comm=MPI.COMM_SELF), lambda: comm.Barrier()):
        try:
            call()
            sys.exit(1)
        except RuntimeError:
            pass
    sys.exit(0)
child = multiprocessing.get_context("fork").Process(target=forked)
child.start()
child.join()
for _ in range(3):
    comm.Allreduce(send, recv)
print("went on" if (recv == total).all() and child.exitcode == 0 else recv, flush=True)
"""
THREADS = """
comms = [comm.Dup() for _ in range(4)]
def work(one):
    for number in range(200):
        result = np.zeros(COUNT)
        one.Allreduce(send, result)
        assert (result == total).all()
    done.append(one)
done = []
threads = [threading.Thread(target=work, args=[one]) for one in comms]
[one.start() for one in threads]
[one.join() for one in threads]
print("threads" if len(done) == 4 else done, flush=True)
"""


def outcome(program, count=4, ranks=3, environment=None, options=()):
    job = run(ranks, ["-c", (START + program).replace("COUNT", str(count))], environment=environment, options=options)
    if "no core:" in job.output:
        pytest.skip(job.output)
    assert not job.timed_out, job.output
    return job


@pytest.mark.parametrize("count", [4, 1 << 17])
def test_neighbours_of_a_killed_rank_raise_an_error(count):
    job = outcome(KILLED, count)
    if "RankFailed" in job.output or "after" in job.output:  # mpiexec may end the job before
        assert "(2,) after 0." in job.output and "unusable" in job.output, job.output


@pytest.mark.parametrize("count", [4, 1 << 17])
def test_a_timeout_names_the_rank_that_has_not_called(count):
    job = outcome(MISSING, count, environment={"PYCOLL_TIMEOUT": "2"})
    assert "did not finish within its timeout of 2 s: it is waiting for rank" in job.output


@pytest.mark.parametrize("count", [4, 1 << 15])
@pytest.mark.parametrize("timeout", ["", "30"])
def test_signal_handlers_that_raise_errors(count, timeout):
    job = outcome(SIGNALS, count, environment={"PYCOLL_TIMEOUT": timeout} if timeout else {})
    assert job.code == 0 and job.output.count("signals and calls") == 3, job.output


@pytest.mark.parametrize("shared", ["1", "0"])
def test_signals_in_collectives_of_objects(shared):
    job = outcome(LONG_OBJECTS, environment={"PYCOLL_SHARED_MEMORY": shared})
    assert job.code == 0 and job.output.count("signals") == 3, job.output


@pytest.mark.parametrize(("program", "text"), [(FORKED, "went on"), (THREADS, "threads")])
def test_forks_and_threads(program, text):
    job = outcome(program, 5000)
    assert job.code == 0 and job.output.count(text) == 3, job.output


NO_SLOTS = """
import numpy as np, pycoll
from mpi4py import MPI
comm = pycoll.Comm(MPI.COMM_WORLD)
for count in (1, 50000):
    comm.Allreduce(np.ones(count), result := np.zeros(count))
    assert (result == comm.size).all()
assert pycoll.attach(comm).slots is None
print("right")
"""


@pytest.mark.parametrize("setting", [("PYCOLL_SHARED_MEMORY", "0"), ("PYCOLL_EXECUTOR", "python")])
def test_a_rank_without_slots(setting):
    """All ranks use messages then."""
    program = f"import os\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1: os.environ.update([{setting}])\n"
    assert run(3, ["-c", program + NO_SLOTS]).output.count("right") == 3


def test_a_rank_in_a_container(tmp_path):
    """Ranks whose processes cannot be seen by others share no memory with them."""
    apart = ["unshare", "-r", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which(apart[0]) or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    (tmp_path / "program.py").write_text(NO_SLOTS)
    (tmp_path / "start.py").write_text(
        "import os, sys\n"
        "command, rank = [sys.executable, sys.argv[1]], os.environ.get('OMPI_COMM_WORLD_RANK')\n"
        "if rank is None: sys.exit('only Open MPI connects processes of several PID namespaces of a host')\n"
        f"command = {apart} + command if rank == '1' else command\n"
        "os.execvp(command[0], command)\n"
    )
    job = run(3, [str(tmp_path / "start.py"), str(tmp_path / "program.py")])
    if "only Open MPI" in job.output:
        pytest.skip("only Open MPI connects processes of several PID namespaces of a host")
    assert job.output.count("right") == 3, job.output
