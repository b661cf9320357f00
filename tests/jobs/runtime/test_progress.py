"""The progress thread, tested in separate jobs: collectives progress while the program computes."""

import pytest

from tests.quick import quick

from .test_consistency import program

# Without MPI_THREAD_MULTIPLE, the program ends at once; test_refused_without_threads checks the error.
WITH_THREADS = """
import sys
from pycoll.runtime import progress
if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
    print("no threads; came to its end", flush=True)
    sys.exit()

def in_flight():
    return any(not getattr(task.executable, "complete", False) for task in list(progress.tasks))
"""

OVERLAP = """
values, result = np.ones(1 << 20), np.empty(1 << 20)
with pycoll.progress_thread():
    for algorithm in ("ring", "tree"):
        world.Barrier()
        request = pycoll.iallreduce(values, result, algorithm=algorithm)
        while in_flight():  # by itself
            time.sleep(1e-3)
        assert request.Test(), algorithm
        assert (result == size).all()
        with pycoll.allreduce_init(values, result, algorithm=algorithm) as persistent:
            world.Barrier()
            persistent.Start()
            while in_flight():
                time.sleep(1e-3)
            assert persistent.Test(), algorithm
"""

# Ranks that wait in MPI, or compute: collectives in flight are moved on in the background.
WITHOUT = """
def elsewhere(what):
    request = pycoll.iallreduce(np.ones(1 << 16), algorithm="tree")
    assert not progress.asleep
    world.Barrier() if what == "wait" else sum(range(10_000_000))
    until = time.monotonic() + 30
    while in_flight():
        assert time.monotonic() < until
    assert request.Get_status() and (request.wait() == size).all()

for what in ("wait", "compute", "wait"):
    elsewhere(what)
time.sleep(0.3)  # until the thread sleeps
assert progress.asleep
elsewhere("compute")
"""

# A rank that holds the lock of the interpreter: the others wait for its part of a collective.
HELD = """
import ctypes
values, result = np.ones(1 << 16), np.empty(1 << 16)
pycoll.iallreduce(values, result, algorithm="ring").wait()
request = pycoll.iallreduce(values, result, algorithm="ring")
if rank == 0:
    ctypes.PyDLL(None).usleep(3_000_000)
    before = time.monotonic()
    request.wait()
else:
    before = time.monotonic()
    request.wait()
    assert time.monotonic() - before < 2.5, "rank 0 held it up"
assert (result == size).all()
"""

MANY = """
import random
from tests.mpi.api.nonblocking import case, check
from pycoll.schedule.registry import PRIMITIVES
with pycoll.progress_thread():
    for turn in range(10):
        open_ones = []
        for number, primitive in enumerate([*PRIMITIVES][:15]):
            one = case(primitive, seed=number + turn, count=1000 if turn % 2 else 3)
            open_ones.append((getattr(pycoll, "i" + primitive)(**one.given), one))
            if number % 5 == 0:
                assert pycoll.allreduce(np.array([rank]), op="max")[0] == size - 1
        came = pycoll.sendrecv(np.array([rank]), (rank + 1) % size, source=(rank - 1) % size)
        assert came[0] == (rank - 1) % size
        random.Random(rank).shuffle(open_ones)
        results = pycoll.waitall([request for request, _ in open_ones]) if turn % 3 == 0 else [
            request.wait() for request, _ in open_ones]
        for result, (_, one) in zip(results, open_ones):
            check(result, one)
"""

PERSISTENT = """
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
"""

STOPS = """
for turn in range(3):
    thread = pycoll.progress_thread(interval=1e-4)
    try:
        pycoll.progress_thread()
    except RuntimeError as problem:
        assert "there is one already" in str(problem)
    else:
        raise AssertionError("two threads")
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
"""

OTHER_THREAD = """
import threading
def wait():
    ended.append((request.wait() == size).all())
for background in (False, True):
    thread = pycoll.progress_thread() if background else None
    ended = []
    request = pycoll.iallreduce(np.ones(1 << 19), algorithm="ring")
    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join()
    assert ended == [True]
    if thread:
        thread.stop()
"""

# A persistent request created in one thread runs in another, while the first thread has other collectives in flight
# and causes programs to be bound again.
PERSISTENT_ELSEWHERE = """
import threading
sys.setswitchinterval(1e-5)
other = world.Dup()
third = world.Dup()
pycoll.attach(other)
pycoll.attach(third)
source, target = np.ones(4), np.empty(4)
persistent = pycoll.allreduce_init(source, target, comm=other, algorithm="ring")
problems = []

def work():
    try:
        for turn in range(1, 200):
            source[...] = turn
            persistent.Start()
            persistent.Wait()
            assert (target == turn * size).all()
            pycoll.allreduce(source, target, comm=third)
            assert (target == turn * size).all()
    except BaseException as error:
        problems.append(error)
        raise

thread = threading.Thread(target=work)
thread.start()
for turn in range(200):
    request = pycoll.iallreduce(np.full(5, turn), algorithm="ring")
    with pycoll.traffic():
        assert (request.wait() == turn * size).all()
thread.join()
assert not problems, problems
assert not progress.tasks
persistent.Free()
"""


@pytest.mark.parametrize("ranks", quick(3, 1))
@pytest.mark.parametrize(
    "text",
    quick(OVERLAP, WITHOUT, HELD, MANY, PERSISTENT, STOPS, OTHER_THREAD, PERSISTENT_ELSEWHERE),
    ids=["overlap", "without", "lock held", "many", "persistent", "stops", "another thread", "persistent elsewhere"],
)
def test_progress_thread(monkeypatch, text, ranks):
    program(monkeypatch, WITH_THREADS + text, ranks)


def test_refused_without_threads(monkeypatch):
    text = """
try:
    pycoll.progress_thread()
except RuntimeError as problem:
    assert "MPI_THREAD_MULTIPLE" in str(problem)
else:
    raise AssertionError("not refused")
assert (pycoll.iallreduce(np.ones(3)).wait() == size).all()
"""
    program(monkeypatch, text, 2, before='import mpi4py; mpi4py.rc.thread_level = "single"')


GAPS = """
import threading
def communicate(number, comm):
    column, numbers = MPI.INT.Create_vector(500, 1, 2).Commit(), np.arange(500)
    for turn in range(TURNS):
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
wrong = []
comms = [pycoll.Comm(COMM.Dup()) for _ in range(4)]
threads = [threading.Thread(target=communicate, args=pair) for pair in enumerate(comms)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
"""


@pytest.mark.parametrize(
    "comm, turns",
    [("world", 500), pytest.param("MPI.COMM_SELF", 3000, marks=pytest.mark.slow)],
    ids=["world", "self"],
)
def test_threads_with_datatypes_with_gaps(monkeypatch, comm, turns):
    """Communicate from several threads, each with its own communicator."""
    program(monkeypatch, WITH_THREADS + GAPS.replace("TURNS", str(turns)).replace("COMM.", f"{comm}."), 2)
