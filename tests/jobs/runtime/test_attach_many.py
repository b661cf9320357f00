"""The error when MPI runs out of communicators."""

import pytest

from tests.launch import run

PROGRAM = """
import numpy as np
import pycoll
from mpi4py import MPI

comm, kept = pycoll.Comm(MPI.COMM_WORLD), []
if "MPICH" not in MPI.Get_library_version():
    raise SystemExit("not MPICH")
try:
    while len(kept) < 2100:
        kept.append(comm.Split(0))
except MPI.Exception as error:
    print(len(kept), "that were not used;", error)
while kept:
    kept.pop().Free()
try:
    while len(kept) < 2100:
        child = comm.Split(0)
        child.Barrier()
        kept.append(child)
except MPI.Exception as error:
    print(len(kept), "communicators;", error)
    kept.append(child)
    while kept:
        kept.pop().Free()
    for _ in range(10):
        result = np.zeros(1)
        child = comm.Split(0)
        child.Allreduce(np.ones(1), result)
        assert result[0] == comm.size
        child.Free()
    print("and again")
"""


@pytest.mark.slow
def test_the_error_says_why():
    job = run(2, ["-c", PROGRAM])
    if "not MPICH" in job.output:
        pytest.skip("only MPICH has so few communicators that a test can use them all")
    assert not job.timed_out and job.code == 0
    assert job.output.count("pycoll needs a private duplicate of each communicator") == 4
    assert "2045 that were not used" in job.output
    assert "1022 communicators" in job.output and "1023 such pairs" in job.output
    assert job.output.count("and again") == 2
