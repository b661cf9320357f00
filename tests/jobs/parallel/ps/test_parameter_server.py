"""PYCOLL_TIMEOUT with the parameter server: errors name the waiting rank, the missing rank and the step."""

import pytest

from tests.jobs.runtime.test_consistency import program
from tests.quick import quick

PROGRAM = """
from functools import partial
from pycoll.parallel import SGD, ParameterServer
from pycoll.base import settings

def work(steps):
    for _ in range(steps):
        ps.step({"a": np.ones(4), "b": np.ones(3, "f4")})

def expect(texts, function, *args):
    for wanted in texts, ["cannot be used any more", *texts]:
        try:
            function(*args)
        except pycoll.CollectiveTimeout as problem:
            for text in wanted:
                assert text in str(problem), (text, str(problem))
        else:
            raise AssertionError("no CollectiveTimeout")

arrays = {"a": np.zeros(4), "b": np.zeros(3, "f4")}
ps = ParameterServer(arrays, optimizer=SGD, **OPTIONS)
world.Barrier()
settings.TIMEOUT = 0.5
"""

# rank 0 stops after two steps
A_WORKER_STOPS = """
if rank == 0:
    work(2)
elif rank == 1:
    expect(["the worker on rank 1 did not finish in 0.5 s: in step 3 it waits for rank 2 (server) to answer"], work, 9)
else:
    expect([SERVER], ps.serve)
world.Barrier()
"""
IN_STEPS = "serve on rank 2 did not finish in 0.5 s: in step 3 it waits for rank 0 (worker) to push"
AT_ONCE = (
    "serve on rank 2 did not finish in 0.5 s: after 4 pushes it waits for the next push, from rank 0 or 1 (worker)"
)

BOTH_WORKERS_STOP = """
if rank < 2:
    work(2)
else:
    expect([SERVER], ps.serve)
world.Barrier()
"""

# the server serves two steps and stops
A_SERVER_STOPS = """
if rank == 2:
    while ps._server.clocks.min() < 2:
        ps.progress()
else:
    expect([f"the worker on rank {rank} did not", "in step 3 it waits for rank 2 (server) to answer"], work, 3)
world.Barrier()
"""

# every rank is both a worker and a server; rank 1 stops after one step
BESIDE = """
if rank == 1:
    work(1)
    while ps._server and ps._server.clocks.min() < 1:
        ps.progress()
elif rank == 0:
    expect(["the worker on rank 0 did not", "in step 2 it waits for rank 0 (server) to answer",
        "the server on this rank: in step 2 it waits for rank 1 (worker) to push"], work, 2)
world.Barrier()
"""

# the worker on rank 0 finishes, the worker on rank 1 does not
NEVER_FINISHES = """
if rank == 0:
    work(1)
    expect(["finish on rank 0 did not", "in step 2 it waits for rank 1 (worker) to push"], ps.finish)
else:
    work(1)
world.Barrier()
"""

NO_RECEIVER = """
if rank == 0:
    expect(["the worker on rank 0 did not"], work, 1)
    expect(["cannot be used any more"], ps.finish)
world.Barrier()
"""


def stops(monkeypatch, text, ranks, **options):
    program(monkeypatch, PROGRAM.replace("**OPTIONS", f"**{options}") + text, ranks, TIMEOUT="30")


@pytest.mark.parametrize("mode", quick("sync", "bounded"))
def test_a_worker_that_stops(monkeypatch, mode):
    stops(monkeypatch, A_WORKER_STOPS.replace("SERVER", repr(IN_STEPS)), 3, mode=mode)


@pytest.mark.slow
def test_workers_that_stop_where_gradients_are_applied_at_once(monkeypatch):
    stops(monkeypatch, BOTH_WORKERS_STOP.replace("SERVER", repr(AT_ONCE)), 3, mode="async")


def test_a_server_that_stops(monkeypatch):
    stops(monkeypatch, A_SERVER_STOPS, 3)


@pytest.mark.slow
def test_a_worker_that_stops_where_workers_serve(monkeypatch):
    stops(monkeypatch, BESIDE, 2, colocated=True)


def test_a_worker_that_does_not_finish(monkeypatch):
    stops(monkeypatch, NEVER_FINISHES, 2, colocated=True)


@pytest.mark.slow
def test_what_has_timed_out_is_not_used_again(monkeypatch):
    stops(monkeypatch, NO_RECEIVER, 2)
