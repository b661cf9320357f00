"""Objects that outlive MPI.Finalize, tested in separate jobs."""

from pathlib import Path

from tests.launch import run


def test_a_request_with_a_datatype_with_gaps_that_outlives_mpi():
    """Check that datatypes created for packing are not freed after MPI.Finalize."""
    job = run(2, [Path(__file__).parent / "programs/datatype_with_gaps.py"])
    assert job.code == 0 and not job.timed_out, job.output
