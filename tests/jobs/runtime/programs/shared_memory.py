"""Collectives in the shared memory of a host, on arrays of as many elements as the second argument says."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime.open_core import why_not_shared
from tests.jobs.interruptions import Interrupted, armed

name, count = sys.argv[1], int(sys.argv[2])
comm = pycoll.Comm(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
send, recv = np.full(count, rank + 1.0), np.zeros(count)
total = size * (size + 1) / 2


def killed():
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


def missing():
    for _ in range(3):  # later calls of a kind take a shorter way
        comm.Allreduce(send, recv)
    if rank:
        time.sleep(6.0)
    for _ in range(0 if rank else 2):
        try:
            comm.Allreduce(send, recv)
        except pycoll.CollectiveTimeout as error:
            print(error, flush=True)
    os._exit(0)


def signals():
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
            interrupted += interruptions_of_one_call(op)
            assert (recv == (total / size if op == "avg" else total)).all(), (op, recv[0])
    signal.setitimer(signal.ITIMER_REAL, 0)
    counted = comm.allreduce(interrupted)
    print("signals" if counted > 20 else f"only {counted}", "and calls" if calls > 50 else calls, flush=True)


def interruptions_of_one_call(op):
    recv[:], interrupted = 0, 0
    while True:
        try:
            armed[0] = True
            if not recv.any():  # the handler ran before the call, or the call is complete
                comm.Allreduce(send, recv, op)
            armed[0] = False
            return interrupted
        except Interrupted:
            interrupted += 1


def long_objects():
    mine = np.ones(300_000)
    for call in (
        lambda: comm.allreduce(mine),
        lambda: comm.allgather({"a": mine}),
        lambda: comm.bcast([mine], 1),
        lambda: comm.allreduce(1, lambda a, b: a + b),
        lambda: comm.alltoall([mine] * size),
        lambda: comm.allreduce(1.5),
        lambda: comm.bcast(b"x" * 3000, 1),
        lambda: comm.allgather(b"x" * 3000),
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


def nested_objects():
    """Pickling calls other collectives, after which entries between hosts have another length."""
    for call in (lambda: comm.gather(rank), lambda: comm.allreduce(1), lambda: comm.allgather(rank)):
        for i in range(5):
            assert comm.allgather(Nested(call, (rank, i))) == [(other, i) for other in range(size)]
    for _ in range(3):
        comm.bcast(1)
        comm.bcast(LONG)
        if rank:
            comm.bcast(None)
        assert comm.bcast(Nested(lambda: comm.bcast(LONG), 7) if rank == 0 else None) == 7
    print("nested", flush=True)


LONG = b"z" * 600


class Nested:
    def __init__(self, call, value):
        self.call, self.value = call, value

    def __reduce__(self):
        self.call()
        return first, (self.value, LONG)


def first(value, _):
    return value


def refuse_in_a_fork():
    for call in (lambda: comm.allreduce(1), lambda: pycoll.bcast_object(1, comm=MPI.COMM_SELF), lambda: comm.Barrier()):
        try:
            call()
            sys.exit(1)
        except RuntimeError:
            pass
    sys.exit(0)


def forked():
    child = multiprocessing.get_context("fork").Process(target=refuse_in_a_fork)
    child.start()
    child.join()
    for _ in range(3):
        comm.Allreduce(send, recv)
    print("went on" if (recv == total).all() and child.exitcode == 0 else recv, flush=True)


def several_threads():
    comms, done = [comm.Dup() for _ in range(4)], []
    threads = [threading.Thread(target=work, args=[one, done]) for one in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("threads" if len(done) == 4 else done, flush=True)


def work(one, done):
    for _ in range(200):
        result = np.zeros(count)
        one.Allreduce(send, result)
        assert (result == total).all()
    done.append(one)


if why_not_shared() and os.environ.get("PYCOLL_SHARED_MEMORY") != "0":
    print("no core:", why_not_shared())
    sys.exit()
for _ in range(3):
    comm.Allreduce(send, recv)
comm.Barrier()
globals()[name]()
