"""Collectives in flight progress in every call that waits for other ranks, even if their communicator is freed."""

import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll import parallel
from pycoll.compiler.program import Program
from pycoll.runtime.attach import attach
from pycoll.runtime.executable import PythonSteps
from pycoll.runtime.progress import tasks
from pycoll.runtime.progress_thread import OtherThreads
from pycoll.runtime.task import Task
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
LONG = 400_000
LEFT, RIGHT = (RANK - 1) % SIZE, (RANK + 1) % SIZE


def blocking_calls(comm, fresh=None):
    ones, block = np.ones(SIZE), np.empty(1)
    return {
        "Dup": lambda: comm.Dup().Free(),
        "Split": lambda: comm.Split(0).Free(),
        "Create": lambda: comm.Create(comm.group).Free(),
        "Reduce_scatter": lambda: comm.Reduce_scatter(ones, block),
        "attach": lambda: pycoll.attach(fresh),
        "init": lambda: pycoll.allreduce_init(ones, comm=fresh).Free(),
        "derived": lambda: derived_reduction(comm),
        "Clone": lambda: comm.Clone().Free(),
        "Split_type": lambda: comm.Split_type(MPI.COMM_TYPE_SHARED).Free(),
        "Create_group": lambda: comm.Create_group(comm.group).Free(),
        "Create_cart": lambda: comm.Create_cart([SIZE]).Free(),
        "Create_graph": lambda: comm.Create_graph([*range(1, SIZE + 1)], [*range(SIZE)]).Free(),
        "Create_dist_graph": lambda: comm.Create_dist_graph([], [], []).Free(),
        "Create_dist_graph_adjacent": lambda: comm.Create_dist_graph_adjacent([], []).Free(),
        "DistributedDataParallel": lambda: parallel.DistributedDataParallel(parameters(), comm=comm).free(),
        "FullyShardedDataParallel": lambda: parallel.FullyShardedDataParallel(parameters(), comm=comm).free(),
        "ParameterServer": lambda: parallel.ParameterServer(
            parameters(), optimizer=parallel.SGD, colocated=True, comm=comm, ranks_per_worker="host"
        ).free(),
        "barrier": lambda: comm.barrier(),
        "bcast": lambda: comm.bcast("from rank 0" if RANK == 0 else None),
        "allreduce": lambda: comm.allreduce(1),
        "gather": lambda: comm.gather(1),
        "scatter": lambda: comm.scatter([1] * SIZE if RANK == SIZE - 1 else None, SIZE - 1),
        "allgather": lambda: comm.allgather(1),
        "alltoall": lambda: comm.alltoall([1] * SIZE),
        "reduce": lambda: comm.reduce(1),
        "Send": lambda: passed_on(comm, lambda peer: comm.Ssend(block, peer), lambda peer: comm.Recv(block, peer)),
        "Recv": lambda: passed_on(comm, lambda peer: comm.Recv(block, peer), lambda peer: comm.Send(block, peer)),
        "Probe": lambda: passed_on(comm, lambda peer: received(comm, peer), lambda peer: comm.Send(block, peer)),
        "mprobe": lambda: passed_on(comm, lambda peer: comm.mprobe(peer).recv(), lambda peer: comm.send(1, peer)),
        "recv": lambda: passed_on(comm, lambda peer: comm.recv(source=peer), lambda peer: comm.send(1, dest=peer)),
        "ssend": lambda: passed_on(comm, lambda peer: comm.ssend(1, peer), lambda peer: comm.recv(source=peer)),
        "Sendrecv": lambda: comm.Sendrecv(ones[:1], RIGHT, recvbuf=block, source=LEFT),
        "Sendrecv_replace": lambda: comm.Sendrecv_replace(block, RIGHT, source=LEFT),
        "sendrecv": lambda: comm.sendrecv(1, RIGHT, source=LEFT),
        "a driver of a plain communicator": lambda: parallel.DistributedDataParallel(parameters(), comm=WORLD).free(),
    }


CALLS = [*blocking_calls(WORLD)]


def passed_on(comm, of_the_first, of_the_others):
    """Exchange messages between rank 0, which calls first, and each other rank."""
    for peer in range(1, SIZE) if RANK == 0 else ():
        of_the_first(peer)
    if RANK:
        of_the_others(0)


def received(comm, source):
    status = MPI.Status()
    comm.Probe(source, status=status)
    comm.Recv(np.empty(1), status.source)


def parameters():
    return {"weight": np.full(8, float(RANK))}


def derived_reduction(comm):
    """Call a reduction that pycoll passes on to MPI."""
    pair = MPI.INT.Create_vector(2, 1, 2).Commit()
    op = MPI.Op.Create(lambda a, b, datatype: None, commute=True)
    comm.Allreduce([np.zeros(3, "i"), 1, pair], [np.zeros(3, "i"), 1, pair], op)
    op.Free()
    pair.Free()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("where", ["on it", "on another communicator"])
def test_blocking_calls_let_collectives_in_flight_go_on(name, where):
    """Rank 0 makes the call first; the other ranks first wait for the collective that rank 0 has in flight."""
    comm, other = pycoll.Comm(WORLD.Dup()), pycoll.Comm(WORLD.Dup())
    fresh = WORLD.Dup()
    call = blocking_calls(comm, fresh)[name]
    result = np.empty(LONG)
    request = (comm if where == "on it" else other).Iallreduce(np.ones(LONG), result, algorithm="ring")
    for step in (call, request.Wait) if RANK == 0 else (request.Wait, call):
        step()
    assert (result == SIZE).all()
    for used in (comm, other, fresh):
        used.Free()


@pytest.mark.skipif(SIZE == 1, reason="nothing is in flight")
def test_a_nonblocking_call_that_mpi_serves_does_not_wait():
    """The other ranks first receive a message that rank 0 sends after the call."""
    comm = pycoll.Comm(WORLD.Dup())
    pair = MPI.INT.Create_vector(2, 1, 2).Commit()
    op = MPI.Op.Create(lambda a, b, datatype: None, commute=True)
    if RANK:
        WORLD.Recv(np.empty(1), 0)
    result = np.empty(LONG)
    requests = [
        comm.Iallreduce(np.ones(LONG), result, algorithm="ring"),
        comm.Iallreduce([np.zeros(3, "i"), 1, pair], [np.zeros(3, "i"), 1, pair], op),
    ]
    for rank in range(1, SIZE) if RANK == 0 else ():
        WORLD.Send(np.empty(1), rank)
    pycoll.waitall(requests)
    assert (result == SIZE).all()
    for handle in (op, pair, comm):
        handle.Free()


def test_a_communicator_freed_while_a_collective_of_several_parts_is_under_way():
    comm = pycoll.Comm(WORLD.Dup())
    send, recv = np.arange(SIZE) + 10 * RANK, np.empty(SIZE, int)
    request = comm.Ialltoallv([send, [1] * SIZE], [recv, [1] * SIZE], algorithm="tree")
    comm.Free()
    request.Wait()
    np.testing.assert_array_equal(recv, 10 * np.arange(SIZE) + RANK)


def test_nonblocking_on_what_idup_made():
    comm = pycoll.Comm(WORLD.Dup())
    comm.algorithm["Allreduce"] = "ring"
    child, request = comm.Idup()
    if RANK == 0:
        assert dict(child.algorithm) == {"allreduce": "ring"}  # available before the request completes
    request.Wait()
    result = np.empty(3)
    child.Iallreduce(np.ones(3), result).Wait()
    assert (result == SIZE).all() and dict(child.algorithm) == {"allreduce": "ring"}
    child.Free()
    comm.Free()


def test_children_keep_the_class_of_a_subclass():
    class Mine(pycoll.Comm):
        pass

    comm = Mine(WORLD.Dup())
    for child in (comm.Dup(), comm.Clone()):
        assert type(child) is Mine
        child.Free()
    comm.Free()


@pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE or SIZE > 3, reason="needs MPI_THREAD_MULTIPLE; slow")
def test_two_threads():
    """One thread runs a persistent collective, the other nonblocking ones, each on its own communicator."""
    first, second = pycoll.Comm(WORLD.Dup()), pycoll.Comm(WORLD.Dup())
    failed = []

    def nonblocking():
        for _ in range(300):
            result = np.empty(1)
            second.Iallreduce(np.ones(1), result).Wait()
            if result[0] != SIZE:
                failed.append(result[0])

    thread = threading.Thread(target=nonblocking)
    thread.start()
    total = np.empty(1)
    with pycoll.allreduce_init(np.ones(1), total, comm=first) as reduction:
        for _ in range(300):
            reduction.Start()
            reduction.Wait()
            assert total[0] == SIZE
        reduction.Start()
    thread.join()
    assert not failed
    first.Free()
    second.Free()


class Interrupted(Exception):
    pass


@pytest.fixture
def signalled():
    """Return a function during which a signal handler raises an exception, which is not written in Python."""

    def handler(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    yield partial(signal.raise_signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("method", ["run", "finish"])
def test_a_task_goes_on_after_an_exception_of_a_signal_handler(signalled, method):
    """The exception is raised after a step, or for `run` also while the parts are made."""
    done = []

    def parts():
        yield PythonSteps(Program([], [], 0), [signalled, lambda: done.append("first")])
        yield PythonSteps(Program([], [], 0), [lambda: done.append("last")])

    def interrupted_parts():
        for number, part in enumerate(parts()):
            yield part if number else PythonSteps(Program([], [], 0), [lambda: done.append("first")])
            if number == 0:
                signalled()

    for made in [parts, interrupted_parts] if method == "run" else [parts]:
        done.clear()
        with pytest.raises(Interrupted):
            getattr(Task(made, "test", attach(WORLD)), method)()
        assert done[0] == "first" and done[-1] == "last" and not tasks
    pycoll.barrier()


def test_a_task_ends_if_a_part_cannot_be_made():
    def parts():
        yield PythonSteps(Program([], [], 0), [])
        raise MemoryError

    comm = WORLD.Dup()
    task = Task(parts, "test", attach(comm))
    with pytest.raises(MemoryError):
        task.finish()
    assert task.done and not tasks
    with pytest.raises(pycoll.CollectiveInterrupted, match="MemoryError"):
        pycoll.barrier(comm=comm)
    comm.Free()


def test_other_threads_compute_or_wait():
    threads = OtherThreads()
    threads.compute()
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    assert not _compute_while(threads, lambda: time.sleep(0.05))
    thread.start()
    try:
        assert _compute_while(threads, lambda: time.sleep(0.2))
    finally:
        stop.set()
        thread.join()


def _compute_while(threads, action):
    """Whether threads have computed during an action, in most of nine measurements: the machine may be busy."""
    found = []
    for _ in range(9):
        threads.compute()
        action()
        found.append(threads.compute())
    return sum(found) > 4
