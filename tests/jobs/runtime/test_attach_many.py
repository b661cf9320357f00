"""The error when MPI runs out of communicators."""

from pathlib import Path

import pytest

from tests.launch import run

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.slow
def test_the_error_says_why():
    job = run(2, [PROGRAMS / "many_communicators.py"])
    if "not MPICH" in job.output:
        pytest.skip("only MPICH has so few communicators that a test can use them all")
    assert not job.timed_out and job.code == 0
    assert job.output.count("pycoll needs a private duplicate of each communicator") == 4
    assert "2045 that were not used" in job.output
    assert "1022 communicators" in job.output and "1023 such pairs" in job.output
    assert job.output.count("and again") == 2
