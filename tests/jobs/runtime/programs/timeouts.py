"""Rank 1 does not take part, and the calls of the other ranks time out."""

import time
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.parallel import DistributedDataParallel
from tests.jobs import calls
from tests.jobs.calls import call, mine, raises, rank, size, world


def time_out(texts, function, *args, **kwargs):
    """Rank 1 waits in an MPI barrier until the calls of the others have timed out."""
    persistent = pycoll.allreduce_init(np.ones(3))
    if not mine:
        start = time.perf_counter()
        raises(pycoll.CollectiveTimeout, texts, function, *args, **kwargs)
        assert time.perf_counter() - start > 0.9
        for again in (pycoll.allreduce, pycoll.iallreduce, pycoll.allreduce_init, lambda values: persistent.Start()):
            raises(pycoll.CollectiveTimeout, ["cannot be used any more", texts[0]], again, np.ones(3))
        assert (pycoll.allreduce(np.ones(3), comm=MPI.COMM_SELF) == 1).all()
    world.Barrier()


def never_called():
    texts = ["bcast by naive on rank ", "within its timeout of 1 s", "it is waiting for rank 1 to send a message to it"]
    time_out(texts, call, "bcast", np.ones(3), 1, algorithm="naive")


def wait_for_several(function):
    texts = ["bcast by tree on rank 0 of 2", "within its timeout of 1 s", "in round 1 it is waiting for rank 1 to send"]
    time_out(texts, lambda: getattr(pycoll, function)([pycoll.ibcast(np.ones(3), 1, algorithm="tree")]))


def never_received():
    texts = ["bcast by naive", "rank 1 to receive a message from it"]
    time_out(texts, call, "bcast", np.ones(1 << 20), 0, algorithm="naive")


def later_rounds():
    """In a ring, rank 0 has received the block of rank 3 in round 1, and waits for that of rank 2 in round 2."""
    request = pycoll.iallgather(np.ones(3), algorithm="ring") if rank != 2 else None
    world.Barrier()  # all have sent what they send in the first round
    texts = ["in round 2 it is waiting for", "rank 3 to send a message to it"] if rank == 0 else ["it is waiting for"]
    if request:
        raises(pycoll.CollectiveTimeout, texts, request.wait)
    world.Barrier()


def freed_early():
    comm = pycoll.Comm(world).Dup()
    pycoll.attach(comm)
    if not mine:
        request = comm.Iallreduce(np.ones(100_000), np.empty(100_000), algorithm="ring")
        for wait in (comm.Free, request.Wait):  # the collective has failed, so both say so
            raises(pycoll.CollectiveTimeout, ["allreduce by ring"], wait)
        assert comm == MPI.COMM_NULL
    world.Barrier()


def messages():
    long, short = np.ones(1 << 20), np.empty(3)
    there = f"on rank {rank} of {size} did not finish in 0.2 s: it waits for"
    waits: dict[Any, list[str]] = {
        partial(pycoll.send, long, 1, 7): ["send " + there, "rank 1 to receive the message with tag 7"],
        partial(pycoll.recv, short, 1, 3): ["recv " + there, "rank 1 to send a message with tag 3"],
        partial(pycoll.recv, short): ["recv " + there, "any rank to send a message"],
        partial(pycoll.sendrecv, short, 1, 0, short.copy(), 1, 5): ["sendrecv " + there, "rank 1 to send", "tag 5"],
        lambda: pycoll.waitall([pycoll.irecv(short, 1, 4)]): ["waitall did", "a message with tag 4 (request 0 of 1)"],
        lambda: pycoll.waitall([world.Irecv(short, 1, 4)]): ["waitall did", "a request of MPI (request 0 of 1)"],
        lambda: pycoll.waitany([pycoll.irecv(short, 1, 8), world.Irecv(short, 1, 9)]): ["tag 8 or a request of MPI"],
    }
    settings.TIMEOUT = 0.2
    for wait, texts in {} if mine else waits.items():
        raises(pycoll.CollectiveTimeout, texts, wait)
    world.Barrier()
    if mine:  # MPI_Finalize of MPICH aborts while messages are pending
        world.Recv(long, 0, 7)
        for tag in (3, 0, 5, 4, 4, 8, 9):
            world.Send(short, 0, tag)
    world.Barrier()


def communicators():
    comms = [pycoll.Comm(world.Dup()) for _ in range(3)]
    for comm in comms:
        comm.Barrier()
    plain = world.Dup()
    group = comms[1].Get_group()
    called = "has not called it"
    waits = {
        lambda: pycoll.barrier(comm=plain): ["first call of pycoll on this comm", "rank 1 has not made this call"],
        lambda: comms[0].Split(0): ["Split did not finish", f"rank 1 {called}"],
        lambda: comms[1].Create_group(group): ["Create_group did not finish", called],
        lambda: DistributedDataParallel({"a": np.empty(3)}): ["the constructor of a driver on rank 0", called],
    }
    settings.TIMEOUT = 0.2
    for wait, texts in {} if mine else waits.items():
        who = "rank 0 of 2 waits" if "rank 1" in texts[1] else "of the 2 ranks"
        raises(pycoll.CollectiveTimeout, [*texts, "did not finish in 0.2 s", who], wait)
    world.Barrier()


calls.run(globals())
