"""Exceptions that signal handlers raise in the middle of a collective."""

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np, pycoll
from mpi4py import MPI

pycoll.abort_on_exception()
form, folder = sys.argv[1], Path(sys.argv[2])
comm = MPI.COMM_WORLD
rank, last = comm.rank, comm.size - 1
pycoll.attach(comm)
go = folder / "go"

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
        inside = "pycoll" in here[1]
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
        out = pycoll.gatherv(values, [table, counts] if rank == 0 else None, root=0, algorithm="tree")
        total = pycoll.bcast(table.reshape(comm.size, -1).sum(axis=0) if rank == 0 else np.empty_like(values))
    else:
        total = pycoll.allreduce(values, algorithm="ring")
    return float(total[0])

values, results = np.ones(9), []
call(values), call(values)  # found by its arguments from now on
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
"""


@pytest.mark.parametrize("form", quick("simple", "parts", "gatherv", "timeout"))
def test_a_caught_interruption_changes_no_result(form, tmp_path):
    """Check that the handler runs after the collective, as with MPI collectives."""
    environment = {"PYCOLL_TIMEOUT": "100"} if form == "timeout" else {}
    job = run(3, ["-c", PROGRAM, form, str(tmp_path)], environment=environment)
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == 3 and "rank 0 was interrupted" in job.output


SEVERAL_WAITS = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np, pycoll
from mpi4py import MPI
from pycoll.parallel import DistributedDataParallel

pycoll.abort_on_exception()
form, folder = sys.argv[1], Path(sys.argv[2])
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
    while frame and os.path.join("pycoll", "") not in frame.f_code.co_filename:
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
"""


@pytest.mark.parametrize(
    "form",
    [
        *quick("attach", "first", "dup", "split", "create_group", "native", "reduce_scatter", "init", "driver"),
        *quick("persistent", "traced"),
    ],
)
def test_an_interruption_comes_after_all_that_belongs_to_a_call(form, tmp_path):
    """Check that an interrupted rank completes every part of the call that other ranks wait for."""
    job = run(2, ["-c", SEVERAL_WAITS, form, str(tmp_path)], limit=40)
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == 2 and "rank 0 was interrupted" in job.output


BROKEN = """
import sys
from functools import partial
import numpy as np, pycoll
from mpi4py import MPI
from pycoll.arguments.ops import kernels

pycoll.abort_on_exception()
form, comm = sys.argv[1], MPI.COMM_WORLD.Dup()
pycoll.attach(comm)
send, recv = np.ones(9), np.empty(9)
failing = False

def add(left, right, out):
    if failing:
        raise OSError("made up")
    np.add(left, right, out)

kernels[np.add, send.dtype] = lambda *operands: partial(add, *operands)

def call():
    if form == "nonblocking":
        pycoll.iallreduce(send, recv, algorithm="ring", comm=comm).wait()
    elif form == "elsewhere":
        pycoll.allreduce(send[:], recv, algorithm="ring", comm=comm)
    else:
        pycoll.allreduce(send, recv, algorithm="ring", comm=comm)

for _ in range(0 if form == "first" else 4):
    call()
failing = True
try:
    call()
except OSError as error:
    print("raised", flush=True)
failing = False
for _ in range(2):
    try:
        call()
    except pycoll.CollectiveInterrupted as error:
        assert "cannot be used any more" in str(error) and "made up" in str(error), error
        print("refused", flush=True)
total = pycoll.allreduce(send)  # on another communicator
assert total[0] == comm.size
comm.Free()
"""


@pytest.mark.parametrize("form", quick("first", "again", "elsewhere", "nonblocking"))
def test_an_error_in_the_middle_makes_the_communicator_unusable(form):
    """Check that later calls are refused, because messages in flight could be mistaken for messages of these calls."""
    job = run(2, ["-c", BROKEN, form])
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("raised") == 2 and job.output.count("refused") == 4
