"""Objects that outlive MPI.Finalize, tested in separate jobs."""

from tests.jobs.runtime.test_consistency import program

GAPS = """
comm = pycoll.Comm(world)
column = MPI.INT.Create_vector(2, 1, 2).Commit()
persistent = comm.Bcast_init([np.zeros(4, "i4"), 1, column])
persistent.Start()
persistent.Wait()
persistent.Free()
MPI.Finalize()
del persistent
"""


def test_a_request_with_a_datatype_with_gaps_that_outlives_mpi(monkeypatch):
    """Check that datatypes created for packing are not freed after MPI.Finalize."""
    program(monkeypatch, GAPS, 2)
