"""The methods of mpi4py are not wrapped until the first nonblocking or persistent collective."""

import pytest

from tests.launch import run

PROGRAM = """
import numpy as np, pycoll
from mpi4py import MPI
from pycoll.api.comm_messages import DeviceMessages

def wrapped():
    return sorted({"Send", "Recv", "bcast"} & set(vars(DeviceMessages)))

comm = pycoll.Comm(MPI.COMM_WORLD)
comm.Allreduce(np.ones(2), np.empty(2))
print("before:", wrapped())
BEGIN
print("after:", wrapped())
"""
NONBLOCKING = "comm.Iallreduce(np.ones(2), np.empty(2)).Wait()"
PERSISTENT = "comm.Barrier_init().Free()"
FUNCTION = "pycoll.iallreduce(np.ones(2)).Wait()"


@pytest.mark.parametrize("begin", [NONBLOCKING, PERSISTENT, FUNCTION])
def test_methods_are_wrapped_by_the_first_collective_in_flight(tmp_path, begin):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("BEGIN", begin))
    job = run(1, [str(path)])
    assert job.code == 0, job.output
    assert "before: []" in job.output and "after: ['Recv', 'Send', 'bcast']" in job.output
