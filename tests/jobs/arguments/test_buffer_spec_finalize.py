"""Objects that outlive MPI.Finalize, tested in separate jobs."""

from tests.launch import run

GAPS = """
import numpy as np, pycoll
from mpi4py import MPI
comm = pycoll.Comm(MPI.COMM_WORLD)
column = MPI.INT.Create_vector(2, 1, 2).Commit()
persistent = comm.Bcast_init([np.zeros(4, "i4"), 1, column])
persistent.Start()
persistent.Wait()
persistent.Free()
MPI.Finalize()
del persistent
"""


def test_a_request_with_a_datatype_with_gaps_that_outlives_mpi():
    """Check that datatypes created for packing are not freed after MPI.Finalize."""
    job = run(2, ["-c", GAPS])
    assert job.code == 0 and not job.timed_out, job.output
