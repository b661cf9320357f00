"""Ranks are killed while they allocate registered memory."""

import os
import random
import tempfile

import pytest

from tests.launch import run

PROGRAM = """
import os, signal, sys, threading
import pycoll
from mpi4py import MPI
from pycoll.runtime import shared_file

shared_file.LIMITED = sys.argv[1]
pycoll.free(pycoll.empty(1))
assert pycoll.attach().registered.areas
if MPI.COMM_WORLD.rank == int(sys.argv[2]):
    threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    pycoll.free(pycoll.empty(100 << 20, "u1"))
"""


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="ranks share no memory")
def test_nothing_is_left_in_shared_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for rank in 0, 1:
            job = run(2, ["-c", PROGRAM, directory, str(rank), str(random.uniform(0.0, 0.5))], 60)
            assert job.code and not job.timed_out and "Error" not in job.output, job.output
            assert os.listdir(directory) == []
