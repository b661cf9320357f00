"""Invalid settings in an MPI job."""

from pathlib import Path

from tests.launch import run


def test_a_misspelt_variable_is_warned_of_once():
    program = Path(__file__).parent / "programs/several_communicators.py"
    job = run(2, [program], 60, environment={"PYCOLL_ALREDUCE": "ring"})
    assert job.code == 0, job.output
    assert job.output.count("PYCOLL_ALREDUCE is not known and has no effect; is it PYCOLL_ALLREDUCE?") == 1, job.output


def test_the_warning_as_an_error_leaves_no_rank_behind():
    program = Path(__file__).parent / "programs/warnings_as_errors.py"
    job = run(2, [program], 60, environment={"PYCOLL_ALREDUCE": "ring"})
    assert job.code == 0 and job.output.count("warned") == 1 and job.output.count("went on") == 2, job.output
