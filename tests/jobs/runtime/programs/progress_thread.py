"""The progress thread: collectives progress while the program computes, waits in MPI or has several threads."""

import ctypes
import random
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime import progress
from pycoll.schedule.registry import PRIMITIVES
from tests.jobs import calls
from tests.jobs.calls import rank, size, world
from tests.mpi.api.nonblocking import case, check


def arrives(result):
    """Wait until a sum of ones is there, without a call that moves it on."""
    until = time.monotonic() + 60
    while not (result == size).all():
        assert time.monotonic() < until
        time.sleep(1e-3)


def overlap():
    values, result = np.ones(1 << 20), np.zeros(1 << 20)
    with pycoll.progress_thread():
        for algorithm in ("ring", "tree"):
            world.Barrier()
            result[...] = 0
            request = pycoll.iallreduce(values, result, algorithm=algorithm)
            arrives(result)
            request.Wait()
            with pycoll.allreduce_init(values, result, algorithm=algorithm) as persistent:
                result[...] = 0
                world.Barrier()
                persistent.Start()
                arrives(result)
                persistent.Wait()


def elsewhere(what):
    result = np.zeros(1 << 16)
    request = pycoll.iallreduce(np.ones(1 << 16), result, algorithm="tree")
    assert not progress.mover.asleep
    world.Barrier() if what == "wait" else sum(range(10_000_000))
    arrives(result)
    request.Wait()


def without_a_thread_of_the_program():
    """Collectives of ranks that wait in MPI, or compute, are advanced in the background."""
    for what in ("wait", "compute", "wait"):
        elsewhere(what)
    falls_asleep()
    elsewhere("compute")


def falls_asleep():
    """Wait until the thread in the background sleeps, because nothing is in flight."""
    until = time.monotonic() + 30
    while not progress.mover.asleep:
        assert time.monotonic() < until
        time.sleep(0.01)


def lock_held():
    """Rank 0 holds the lock of the interpreter; the others wait for its part of a collective."""
    values, result = np.ones(1 << 16), np.empty(1 << 16)
    pycoll.iallreduce(values, result, algorithm="ring").wait()
    for thread_sleeps in (False, True):
        if thread_sleeps:
            falls_asleep()
        world.Barrier()
        request = pycoll.iallreduce(values, result, algorithm="ring")
        if rank == 0:
            ctypes.PyDLL(None).usleep(3_000_000)
        before = time.monotonic()
        request.wait()
        assert rank == 0 or time.monotonic() - before < 2.5, f"rank 0 held it up, {thread_sleeps=}"
        assert (result == size).all()


def many():
    with pycoll.progress_thread():
        for turn in range(10):
            started = []
            for number, primitive in enumerate([*PRIMITIVES][:15]):
                one = case(primitive, seed=number + turn, count=1000 if turn % 2 else 3)
                started.append((getattr(pycoll, "i" + primitive)(**one.given), one))
                if number % 5 == 0:
                    assert pycoll.allreduce(np.array([rank]), op="max")[0] == size - 1
            came = pycoll.sendrecv(np.array([rank]), (rank + 1) % size, source=(rank - 1) % size)
            assert came[0] == (rank - 1) % size
            random.Random(rank).shuffle(started)
            requests = [request for request, _ in started]
            results = [request.wait() for request in requests] if turn % 3 else pycoll.waitall(requests)
            for result, (_, one) in zip(results, started):
                check(result, one)


def persistent():
    values, result = np.empty(4), np.empty(4)
    with pycoll.progress_thread(1e-6):
        requests = [pycoll.allreduce_init(values, result), pycoll.barrier_init()]
        for turn in range(200):
            values[...] = turn
            for request in requests:
                request.Start()
            for request in requests:
                request.Wait()
            assert (result == turn * size).all()
    for request in requests:
        request.Free()


def stops():
    for _ in range(3):
        thread = pycoll.progress_thread(interval=1e-4)
        calls.raises(RuntimeError, ["there is one already"], pycoll.progress_thread)
        request = pycoll.iallreduce(np.ones(1 << 19), algorithm="ring")
        thread.stop()
        thread.stop()
        assert (request.wait() == size).all()
    request = pycoll.ibarrier()
    pycoll.progress_thread().stop()
    request.Wait()
    try:
        with pycoll.progress_thread():
            raise KeyError
    except KeyError:
        pass
    pycoll.progress_thread()  # which the end of the program stops
    assert (pycoll.allreduce(np.ones(3)) == size).all()


def another_thread():
    """One thread starts a collective, and another waits for it."""
    for background in (False, True):
        thread = pycoll.progress_thread() if background else None
        right = []
        request = pycoll.iallreduce(np.ones(1 << 19), algorithm="ring")
        waiting = threading.Thread(target=lambda request, right: right.append(request.wait()), args=(request, right))
        waiting.start()
        waiting.join()
        assert len(right) == 1 and (right[0] == size).all()
        if thread:
            thread.stop()


def persistent_elsewhere():
    """Start a persistent request in another thread than that which created it.

    Meanwhile, the first thread has other collectives in flight and causes programs to be bound again.
    """
    sys.setswitchinterval(1e-5)
    other, third = world.Dup(), world.Dup()
    pycoll.attach(other)
    pycoll.attach(third)
    source, target = np.ones(4), np.empty(4)
    request = pycoll.allreduce_init(source, target, comm=other, algorithm="ring")
    problems = []
    thread = threading.Thread(target=started_often, args=(request, source, target, third, problems))
    thread.start()
    for turn in range(200):
        mine = pycoll.iallreduce(np.full(5, turn), algorithm="ring")
        with pycoll.traffic():
            assert (mine.wait() == turn * size).all()
    thread.join()
    assert not problems, problems
    assert not progress.tasks
    request.Free()


def started_often(request, source, target, comm, problems):
    try:
        for turn in range(1, 200):
            source[...] = turn
            request.Start()
            request.Wait()
            assert (target == turn * size).all()
            pycoll.allreduce(source, target, comm=comm)
            assert (target == turn * size).all()
    except BaseException as error:
        problems.append(error)
        raise


def gaps(which, turns):
    """Communicate datatypes with gaps from several threads, each with its own communicator."""
    wrong = []
    comms = [pycoll.Comm({"world": world, "self": MPI.COMM_SELF}[which].Dup()) for _ in range(4)]
    threads = [threading.Thread(target=columns, args=(*pair, int(turns), wrong)) for pair in enumerate(comms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def columns(number, comm, turns, wrong):
    column, numbers = MPI.INT.Create_vector(500, 1, 2).Commit(), np.arange(500)
    for turn in range(turns):
        send, recv = np.full((2, 1000), -1, "i4")
        send[::2] = numbers + 1000 * number + turn
        if comm.size == 1:
            comm.Alltoall([send, 1, column], [recv, 1, column])
        else:
            recv = send.copy() if rank == 0 else recv
            comm.Bcast([recv, 1, column])
        if not (send == recv).all():
            wrong.append((number, turn))
            break


if MPI.Query_thread() < MPI.THREAD_MULTIPLE:  # progress_refused.py checks the error
    print("no threads; came to its end", flush=True)
else:
    calls.run(globals())
