"""Signal handlers that raise exceptions in collectives on registered buffers."""

import pytest

from tests.launch import run

PROGRAM = """
import signal, sys
from dataclasses import replace
import numpy as np, pycoll
from mpi4py import MPI
from pycoll.runtime.registered import Registered

pycoll.abort_on_exception()
comm, count, calls = MPI.COMM_WORLD, 1 << 14, 4000 if MPI.COMM_WORLD.size == 2 else 1500
if sys.argv[1] == "hosts":
    channel = pycoll.attach(comm)
    channel.facts = replace(channel.facts, hosts=(0, 0, 1, 1))
    channel.registered = Registered(channel.comm, channel.facts.on_host_of(comm.rank))
mine, result = (pycoll.zeros(count, np.float32) for _ in range(2))
algorithm = "two_level" if sys.argv[1] == "hosts" else None
if sys.argv[1] == "messages":
    result = np.zeros(count, np.float32)
interrupted = 0

class Interrupted(Exception):
    pass

def handler(number, frame):
    raise Interrupted

signal.signal(signal.SIGALRM, handler)
pycoll.allreduce(mine, result, algorithm=algorithm)
for number in range(calls):
    try:
        mine[:] = number + comm.rank
        # a period that is no multiple of the time of a call, so that signals come everywhere
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 97) if comm.rank == 0 else 0)
        pycoll.allreduce(mine, result, algorithm=algorithm)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        interrupted += 1
        done = (result == number * comm.size + comm.size * (comm.size - 1) / 2).all()
        if not done:  # the signal came before the call had begun
            pycoll.allreduce(mine, result, algorithm=algorithm)
    assert (result == number * comm.size + comm.size * (comm.size - 1) / 2).all(), (comm.rank, number)
print(f"rank {comm.rank}: {interrupted} interruptions, right", flush=True)
assert interrupted > 100 or comm.rank > 0
"""


@pytest.mark.parametrize("memory, ranks", [("registered", 2), ("messages", 2), ("hosts", 4)])
def test_interruptions_change_no_result(memory, ranks):
    """Check that a call is either not begun or complete when it raises the exception of a handler."""
    job = run(ranks, ["-c", PROGRAM, memory])
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == ranks
