"""A signal handler of rank 0 raises an exception while its collective waits for the last rank."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
form, folder = sys.argv[1], Path(sys.argv[2])
comm = MPI.COMM_WORLD
rank, last = comm.rank, comm.size - 1
pycoll.attach(comm)
go = folder / "go"
PACKAGE = str(Path(pycoll.__file__).parent)


class Interrupted(Exception):
    pass


def handler(number, frame):
    raise Interrupted


def innermost():
    # the innermost frame of the main thread that is not a wait for the interpreter
    return sys._current_frames()[threading.main_thread().ident]


def interrupt_when_inside():
    # once the main thread is in the same frame for long: it waits inside MPI for the last rank
    before, since = None, 0
    while since < 20:
        frame = innermost()
        here = (frame.f_code.co_name, frame.f_code.co_filename)
        inside = here[1].startswith(PACKAGE)
        since = since + 1 if inside and (here == before or form == "timeout") else 0
        before = here
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.05)
    go.touch()


def call(values):
    if form == "parts":  # packed before, unpacked after
        total = pycoll.allreduce([values, values.copy()], algorithm="ring")[0]
    elif form == "gatherv":
        counts = [values.size] * comm.size
        table = np.zeros(values.size * comm.size)
        pycoll.gatherv(values, [table, counts] if rank == 0 else None, root=0, algorithm="tree")
        total = pycoll.bcast(table.reshape(comm.size, -1).sum(axis=0) if rank == 0 else np.empty_like(values))
    else:
        total = pycoll.allreduce(values, algorithm="ring")
    return float(total[0])


values, results = np.ones(9), []
call(values)
call(values)  # found by its arguments from now on
comm.Barrier()
if rank == 0:
    signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt_when_inside)
    thread.start()
    try:
        call(values)
        print("rank 0 was not interrupted", flush=True)
    except Interrupted:
        print("rank 0 was interrupted", flush=True)
    thread.join()
else:
    while rank == last and not go.exists():
        time.sleep(0.005)
    if form != "gatherv":
        call(values)
if form == "gatherv" and rank != 0:
    counts = [values.size] * comm.size
    pycoll.gatherv(values, None, root=0, algorithm="tree")
for number in range(2, 12):
    total = call(np.full(9, float(number)))
    assert total == number * comm.size, (rank, number, total)
print("right", flush=True)
