"""Workers or servers of a parameter server stop, and the calls of the others time out."""

import numpy as np

import pycoll
from pycoll.base import settings
from pycoll.parallel import SGD, ParameterServer
from tests.jobs import calls
from tests.jobs.calls import raises, rank, world


def create(**options):
    arrays = {"a": np.zeros(4), "b": np.zeros(3, "f4")}
    ps = ParameterServer(arrays, optimizer=SGD, **options)
    world.Barrier()
    settings.TIMEOUT = 0.5
    return ps


def work(ps, steps):
    for _ in range(steps):
        ps.step({"a": np.ones(4), "b": np.ones(3, "f4")})


def times_out(texts, function, *args):
    for wanted in texts, ["cannot be used any more", *texts]:
        raises(pycoll.CollectiveTimeout, wanted, function, *args)


def worker(mode):
    """Rank 0 stops after two steps."""
    ps = create(mode=mode)
    if rank == 0:
        work(ps, 2)
    elif rank == 1:
        text = "the worker on rank 1 did not finish in 0.5 s: in step 3 it waits for rank 2 (server) to answer"
        times_out([text], work, ps, 9)
    else:
        text = "serve on rank 2 did not finish in 0.5 s: in step 3 it waits for rank 0 (worker) to push"
        times_out([text], ps.serve)
    world.Barrier()


def both_workers():
    ps = create(mode="async")
    if rank < 2:
        work(ps, 2)
    else:
        waits = "after 4 pushes it waits for the next push, from rank 0 or 1 (worker)"
        times_out([f"serve on rank 2 did not finish in 0.5 s: {waits}"], ps.serve)
    world.Barrier()


def server():
    """The server serves two steps and stops."""
    ps = create()
    if rank == 2:
        while ps._server.clocks.min() < 2:
            ps.progress()
    else:
        texts = [f"the worker on rank {rank} did not", "in step 3 it waits for rank 2 (server) to answer"]
        times_out(texts, work, ps, 3)
    world.Barrier()


def worker_and_server():
    """Every rank is both; rank 1 stops after one step."""
    ps = create(colocated=True)
    if rank == 1:
        work(ps, 1)
        while ps._server and ps._server.clocks.min() < 1:
            ps.progress()
    elif rank == 0:
        texts = ["the worker on rank 0 did not", "in step 2 it waits for rank 0 (server) to answer"]
        texts.append("the server on this rank: in step 2 it waits for rank 1 (worker) to push")
        times_out(texts, work, ps, 2)
    world.Barrier()


def before_finish():
    """The worker on rank 0 finishes, the worker on rank 1 does not."""
    ps = create(colocated=True)
    work(ps, 1)
    if rank == 0:
        times_out(["finish on rank 0 did not", "in step 2 it waits for rank 1 (worker) to push"], ps.finish)
    world.Barrier()


def at_once():
    """The server on rank 1 never serves."""
    ps = create()
    if rank == 0:
        times_out(["the worker on rank 0 did not"], work, ps, 1)
        times_out(["cannot be used any more"], ps.finish)
    world.Barrier()


calls.run(globals())
