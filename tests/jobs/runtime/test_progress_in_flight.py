"""Collectives in flight beside signals, forks, killed ranks and the thread that advances them."""

import pytest

from tests.launch import run
from tests.quick import quick

from .interrupted import INTERRUPTED

START = """
import os, random, signal, sys, time
import numpy as np
from mpi4py import MPI
import pycoll

comm = pycoll.Comm(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
send, recv = np.full(1000, rank + 1), np.zeros(1000, int)
total = size * (size + 1) // 2
comm.Iallreduce(send, recv).Wait()
comm.Barrier()
"""

# A datatype with gaps needs work in Python before and after; the thread in the background takes part in it.
TWO_THREADS = """
sys.setswitchinterval(1e-6)
gaps = MPI.LONG.Create_vector(2000, 1, 2).Commit()
own = random.Random(rank)
for turn in range(300):
    given, blocks = np.full(4000, turn + rank), np.zeros(4000 * size, int)
    request = comm.Iallgather([given, 1, gaps], [blocks, 1, gaps])
    end = time.perf_counter() + 3e-3 * own.random()
    while time.perf_counter() < end:
        pass
    request.Wait()
    for peer in range(size):
        assert (blocks[3999 * peer :][:3999:2] == turn + peer).all(), (turn, peer)
print("right", flush=True)
"""

SIGNALS = (
    INTERRUPTED
    + """
def add(left, right, datatype):
    np.frombuffer(right, int).__iadd__(np.frombuffer(left, int))

came, own = 0, random.Random(rank)
operation = MPI.Op.Create(add, True) if sys.argv[1] == "own" else MPI.SUM
for turn in range(1, 300):
    recv[:] = 0
    request = comm.Iallreduce(send * turn, recv, operation, algorithm="ring")
    signal.setitimer(signal.ITIMER_REAL, own.uniform(1e-5, 4e-4))
    armed[0] = True
    while True:
        try:
            while not request.Test() if turn % 2 else not request.Wait():
                pass
            break
        except Interrupted:
            came += 1
    armed[0] = False
    assert (recv == total * turn).all(), turn
print("right", flush=True)
"""
)

AN_ALARM = """
def handler(number, frame):
    raise TimeoutError("alarm")

signal.signal(signal.SIGALRM, handler)
for turn in range(10):
    comm.Barrier()
    if rank == 1:
        time.sleep(0.03)
    try:
        if rank == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        request = comm.Iallreduce(send, recv)
        request.Wait()
    except TimeoutError as error:
        assert rank == 0 and str(error) == "alarm"
        request.Wait()
    assert (recv == total).all()
print("right", flush=True)
"""

KILLED = """
if rank == size - 1:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
requests = [comm.Iallreduce(send, np.zeros(1000, int)) for _ in range(2)]
start = time.monotonic()
try:
    while not requests[0].Test() if sys.argv[1] == "test" else not pycoll.waitall(requests):
        pass
except pycoll.RankFailed as error:
    print(f"{error.ranks} after {time.monotonic() - start:.1f} s", flush=True)
os._exit(0)
"""

A_FORK = """
request = comm.Iallreduce(send, recv)
child = os.fork()
if not child:
    for call in (lambda: comm.Allreduce(send, recv), lambda: comm.Iallreduce(send, recv)):
        try:
            call()
        except RuntimeError as error:
            assert "it belongs to the process that forked this one" in str(error)
        else:
            os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
request.Wait()
assert (recv == total).all()
for turn in range(20):
    comm.Allreduce(send * turn, recv)
    assert (recv == total * turn).all()
print("right", flush=True)
"""


def outcome(program, *arguments, ranks=2, **environment):
    job = run(ranks, ["-c", START + program, *arguments], environment=environment)
    assert not job.timed_out, job.output
    return job


@pytest.mark.parametrize("executor", quick("", "python"))
def test_the_thread_in_the_background_beside_that_of_the_program(executor):
    job = outcome(TWO_THREADS, PYCOLL_EXECUTOR=executor)
    assert job.output.count("right") == 2, job.output


@pytest.mark.parametrize("operation", ["own", "sum"])
@pytest.mark.parametrize("variable", quick("PYCOLL_EXECUTOR=core", "PYCOLL_TIMEOUT=20", "PYCOLL_EXECUTOR=python"))
def test_an_exception_of_a_signal_handler_breaks_nothing_off(operation, variable):
    name, value = variable.split("=")
    job = outcome(SIGNALS, operation, **{name: value})
    assert job.output.count("right") == 2, job.output


def test_the_exception_of_a_handler_may_be_an_error_of_the_system():
    job = outcome(AN_ALARM)
    assert job.output.count("right") == 2, job.output


@pytest.mark.parametrize("how", ["wait", "test"])
def test_a_rank_is_killed_while_several_are_in_flight(how):
    job = outcome(KILLED, how, ranks=3)
    if "after" in job.output:  # mpiexec may end the job before
        assert "(2,) after 0." in job.output or "[2] after 0." in job.output, job.output


def test_a_forked_process_takes_part_in_nothing():
    job = outcome(A_FORK)
    assert job.output.count("right") == 2, job.output
