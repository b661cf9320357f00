"""A signal handler of rank 0 raises an exception in a call that waits for other ranks several times."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import DistributedDataParallel

pycoll.abort_on_exception()
form, folder = sys.argv[1], Path(sys.argv[2])
PACKAGE = str(Path(pycoll.__file__).parent)
comm = pycoll.Comm(MPI.COMM_WORLD)
rank, size, go = comm.rank, comm.size, folder / "go"
fresh, pair = MPI.COMM_WORLD.Dup(), MPI.DOUBLE.Create_contiguous(2).Commit()
values, result = np.zeros(4), np.zeros(4)


def add(a, b, datatype):
    np.add(np.frombuffer(a), np.frombuffer(b), out=np.frombuffer(b))


operation = MPI.Op.Create(add)
persistent = comm.Allreduce_init(values, result)


class Interrupted(Exception):
    pass


def handler(number, frame):
    raise Interrupted


def inside():
    # whether the main thread is in a call of pycoll
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def interrupt_when_inside():
    while not inside():
        time.sleep(0.005)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.05)
    go.touch()


def call(value):
    values[:] = value
    if form == "first":
        pycoll.allreduce(values, result, comm=fresh)
    elif form == "attach":
        pycoll.attach(fresh)
        return value * size
    elif form == "dup":
        return value * comm.Dup().size
    elif form == "split":
        return value * comm.Split(0, rank).size
    elif form == "create_group":
        return value * comm.Create_group(comm.Get_group()).size
    elif form == "native":
        comm.Allreduce([values, 2, pair], [result, 2, pair], operation)
    elif form == "reduce_scatter":
        comm.Reduce_scatter(np.full(4 * size, float(value)), result)
    elif form == "init":
        try:
            comm.Reduce_scatter_init(np.full(4 * size, float(value)), np.empty(4)).Free()
        finally:  # whose messages have the next tag
            comm.Iallreduce(values, result, algorithm="ring").Wait()
    elif form == "driver":
        parameters = {"a": values, "b": values.astype("f4")}
        return float(DistributedDataParallel(parameters).parameters["b"][0]) * size
    elif form == "traced":
        comm.Allreduce(values, result, algorithm="ring")
    elif form == "persistent":
        persistent.Start()
        request = comm.Ibarrier()
        try:
            persistent.Wait()
        finally:
            assert result[0] == value * size
            request.Wait()
    return float(result[0])


def job():
    if rank == 0:
        signal.signal(signal.SIGUSR1, handler)
        thread = threading.Thread(target=interrupt_when_inside)
        thread.start()
        try:
            call(1)
            print("rank 0 was not interrupted", flush=True)
        except Interrupted:
            print("rank 0 was interrupted", flush=True)
        thread.join()
        assert signal.getsignal(signal.SIGUSR1) is handler
    else:
        while not go.exists():
            time.sleep(0.005)
        call(1)
    for number in range(2, 5):
        total = call(number)
        assert total == number * size, (rank, number, total)
    print("right", flush=True)


comm.Barrier()
if form == "traced":
    with pycoll.trace(folder):
        job()
else:
    job()
