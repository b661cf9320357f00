"""Signals interrupt thousands of collectives on registered or ordinary buffers."""

import signal
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime.registered import Registered

pycoll.abort_on_exception()
comm, count, calls = MPI.COMM_WORLD, 1 << 14, 4000 if MPI.COMM_WORLD.size == 2 else 1500
if sys.argv[1] == "hosts":
    channel = pycoll.attach(comm)
    channel.facts = replace(channel.facts, hosts=(0, 0, 1, 1))
    channel.registered = Registered(channel.comm, channel.facts.on_host_of(comm.rank))
mine, result = (pycoll.zeros(count, np.float32) for _ in range(2))
algorithm: Any = "two_level" if sys.argv[1] == "hosts" else None
if sys.argv[1] == "messages":
    result = np.zeros(count, np.float32)
if sys.argv[1] in ("ordinary", "background", "traced"):  # calls of Comm on ordinary buffers
    count, calls = 3 << 14, 1500
    mine, result = np.zeros(count, np.float32), np.zeros((comm.size, count), np.float32)
if sys.argv[1] == "background":  # MPI blocks while another thread advances the collectives in flight
    pycoll.progress_thread()
    calls = 1000
interrupted = 0


def call():
    if mine.size > 1 << 14:
        pycoll.Comm(comm).Allgather(mine, result)
    else:
        pycoll.allreduce(mine, result, algorithm=algorithm)


def is_right(number):
    if mine.size > 1 << 14:
        return (result.T == number + np.arange(comm.size)).all()
    return (result == number * comm.size + comm.size * (comm.size - 1) / 2).all()


class Interrupted(Exception):
    pass


def handler(number, frame):
    if armed:  # CPython may run a handler some time after the timer has been stopped
        raise Interrupted


armed = False
signal.signal(signal.SIGALRM, handler)
call()
for number in range(calls):
    request = None
    if sys.argv[1] == "background" and comm.rank == 0:
        request = pycoll.iallreduce(np.ones(9), np.zeros(9))
    mine[:] = number + comm.rank
    try:
        armed = True
        # a period that is no multiple of the time of a call, so that signals come everywhere
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 97) if comm.rank == 0 else 0)
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        armed = False
    except Interrupted:
        armed = False
        interrupted += 1
        if not is_right(number):  # the signal came before the call had begun
            call()
    assert is_right(number), (comm.rank, number)
    if sys.argv[1] == "background":
        (request or pycoll.iallreduce(np.ones(9), np.zeros(9))).Wait()
print(f"rank {comm.rank}: {interrupted} interruptions, right", flush=True)
assert interrupted > 100 or comm.rank > 0
