"""Invalid settings in an MPI job."""

from tests.launch import run


def test_a_misspelt_variable_is_warned_of_once():
    program = """
import numpy as np, pycoll
from mpi4py import MPI
for comm in (MPI.COMM_WORLD, MPI.COMM_SELF, MPI.COMM_WORLD.Dup()):
    for _ in range(2):
        assert pycoll.allreduce(np.ones(3), comm=comm)[0] == comm.size
"""
    job = run(2, ["-c", program], 60, environment={"PYCOLL_ALREDUCE": "ring"})
    assert job.code == 0, job.output
    assert job.output.count("PYCOLL_ALREDUCE is not known and has no effect; is it PYCOLL_ALLREDUCE?") == 1, job.output
