"""Collectives in flight beside signals, forks, killed ranks and the thread that advances them."""

import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from mpi4py import MPI

import pycoll
from tests.jobs.interruptions import Interrupted, armed

comm = pycoll.Comm(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
send, recv = np.full(1000, rank + 1), np.zeros(1000, int)
total = size * (size + 1) // 2


def two_threads():
    """A datatype with gaps needs work in Python before and after; the thread in the background takes part in it."""
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


def add(left, right, datatype):
    np.frombuffer(right, int).__iadd__(np.frombuffer(left, int))


def signals(kind):
    own = random.Random(rank)
    operation = MPI.Op.Create(add, True) if kind == "own" else MPI.SUM
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
                pass
        armed[0] = False
        assert (recv == total * turn).all(), turn


def two_communicators():
    """Two threads in blocking calls of several parts, which meet in another order on each rank."""
    sys.setswitchinterval(1e-4)

    def calls(duplicate, seed):
        numbers = random.Random(seed)
        for turn in range(150):
            given = np.full(numbers.choice([1, 10, 1000, 20000]), rank + turn + 1.0)
            request = pycoll.iallreduce(given, comm=duplicate)
            result = pycoll.allreduce(given, op=numbers.choice(["sum", "exact_sum"]), comm=duplicate)
            assert (result == total + turn * size).all() and (request.wait() == result).all(), turn

    duplicates = [MPI.COMM_WORLD.Dup() for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(calls, pycoll.Comm(each), seed) for seed, each in enumerate(duplicates)]:
            future.result()


def slow_add(left, right, datatype):
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    add(left, right, datatype)


def alarm_in_an_operation():
    """The call that waits for the operation raises the exception, and not a later one."""
    signal.signal(signal.SIGALRM, raise_timeout)
    operation, other = MPI.Op.Create(slow_add, True), pycoll.Comm(MPI.COMM_WORLD.Dup())
    raised = 0
    for _ in range(6):
        comm.Barrier()
        later = other.Ibarrier() if rank == 0 else None
        request = comm.Iallreduce(send, recv, operation)
        if rank == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.03)
        try:
            request.Wait()
        except TimeoutError:
            raised += 1
        if later is None:
            time.sleep(0.1)
            later = other.Ibarrier()
        try:
            later.Wait()
        except TimeoutError:
            raised += 1  # the operation was complete before the request was waited for
        comm.Barrier()
        assert (recv == total).all()
    assert raised == (6 if rank == 0 else 0), raised


def raise_timeout(number, frame):
    raise TimeoutError("alarm")


def alarm():
    signal.signal(signal.SIGALRM, raise_timeout)
    for _ in range(10):
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


def killed(how):
    if rank == size - 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    requests = [comm.Iallreduce(send, np.zeros(1000, int)) for _ in range(2)]
    start = time.monotonic()
    try:
        while not requests[0].Test() if how == "test" else not pycoll.waitall(requests):
            pass
    except pycoll.RankFailed as error:
        print(f"{error.ranks} after {time.monotonic() - start:.1f} s", flush=True)
    os._exit(0)


def fork():
    if rank:
        MPI.COMM_WORLD.Barrier()
    request = comm.Iallreduce(send, recv)
    if not (child := os.fork()):
        waits = () if rank else (request.Wait,)  # on other ranks, the request may be complete
        for call in (*waits, lambda: comm.Allreduce(send, recv), lambda: comm.Iallreduce(send, recv)):
            try:
                call()
            except RuntimeError as error:
                assert "it belongs to the process that forked this one" in str(error)
            else:
                os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    if rank == 0:
        MPI.COMM_WORLD.Barrier()
    request.Wait()
    assert (recv == total).all()
    for turn in range(20):
        comm.Allreduce(send * turn, recv)
        assert (recv == total * turn).all()


comm.Iallreduce(send, recv).Wait()
comm.Barrier()
globals()[sys.argv[1]](*sys.argv[2:])
print("right", flush=True)
