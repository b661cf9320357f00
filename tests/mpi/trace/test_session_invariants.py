"""Invariants of traces of random runs: messages arrive after they were sent, and no time is counted twice."""

import random
import time
from functools import partial

import numpy as np
import pytest

import pycoll
from pycoll.trace import session
from pycoll.trace.reading import read
from pycoll.trace.summary import lateness, overlap, uses, waited_for
from tests.mpi.native import SIZE, WORLD
from tests.tracing import arrows, whole

pytestmark = pytest.mark.mpi
N = 12 * SIZE, 12_000 * SIZE  # elements of a vector
# the all-gather is the one that some registered buffers synchronize with
CALLS = [
    ("allreduce", "ring"),
    ("allreduce", "native"),
    ("allgather", "tree"),
    ("bcast", None),
    ("barrier", "dissemination"),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let all ranks take part in the last measurement of the clocks, however late they are."""
    monkeypatch.setattr(session, "PATIENCE", 200)


def call(comm, form, primitive, algorithm, send, recv):
    """Call a collective in the blocking form or in another one."""
    buffers = {"allgather": (send[: len(send) // SIZE], recv), "bcast": (send,), "barrier": ()}
    function = getattr(pycoll, form.format(primitive))
    return function(*buffers.get(primitive, (send, recv)), algorithm=algorithm, comm=comm)


def run(comm, seed, allocate):
    """Start the same random collectives on all ranks, and wait for them in different orders."""
    common, own, started = random.Random(seed), random.Random(f"{seed} {WORLD.rank}"), []
    free = [(allocate(N[1]), allocate(N[1])) for _ in range(11)]
    repeated = call(comm, "{}_init", "allreduce", "ring", *free.pop())
    for _ in range(50):
        time.sleep(own.choice([0, 0, 0, 1e-4, 1e-3]))
        what, n = common.random(), common.choice(N)
        if what < 0.1 or len(free) == 1:
            for request, _ in own.sample(started, len(started)):
                request.wait()
            free += [buffers for _, buffers in started]
            started.clear()
        elif what < 0.8:
            send, recv = free.pop()
            started.append((call(comm, "i{}", *common.choice(CALLS), send[:n], recv[:n]), (send, recv)))
        elif what < 0.9:
            repeated.Start()
            repeated.Wait()
        else:
            call(comm, "{}", *common.choice(CALLS), *free[-1])
    pycoll.waitall([request for request, _ in started])
    repeated.Free()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("registered", [False, True], ids=["ordinary", "registered"])
def test_random_runs(directory, seed, registered):
    with pycoll.trace(directory):
        comm = pycoll.Comm(WORLD).Dup()
        run(comm, seed, partial(pycoll.empty, comm=comm) if registered else np.ones)
        comm.Free()
    WORLD.Barrier()
    trace, events = read(directory), whole(directory)
    assert len(arrows(events)) == sum(event["ph"] == "b" and event["cat"] == "message" for event in events)
    for use in uses(trace):
        assert use.total <= trace.end / 1e3
    for number, rank in trace.ranks.items():
        assert lateness(trace)[number].late <= trace.end
        waited = waited_for(rank)
        assert number not in waited and all(0 <= time <= trace.end for time in waited.values())
        assert waited.total() <= trace.end and overlap(rank).flying <= trace.end


def test_ranks_that_hurry_wait_for_the_slow_one(directory):
    """Equal buckets in flight, all started late by the last rank, for which the others wait."""
    with pycoll.trace(directory):
        pycoll.barrier()
        for _ in range(3):
            time.sleep(0.05 if WORLD.rank == SIZE - 1 else 0)
            pycoll.waitall([pycoll.iallreduce(np.ones(N[0]), algorithm="ring") for _ in range(10)])
    WORLD.Barrier()
    trace = read(directory)
    late = {number: one.late for number, one in lateness(trace).items()}
    if SIZE > 1:
        assert max(late, key=late.__getitem__) == SIZE - 1
        assert 0.1e9 <= late[SIZE - 1] <= trace.end
        assert all(0.05e9 <= waited_for(trace.ranks[rank]).total() <= trace.end for rank in range(SIZE - 1))
