"""Exceptions that signal handlers raise in the middle of a collective."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("form", quick("simple", "parts", "gatherv", "timeout"))
def test_a_caught_interruption_changes_no_result(form, tmp_path):
    """Check that the handler runs after the collective, as with MPI collectives."""
    environment = {"PYCOLL_TIMEOUT": "100"} if form == "timeout" else {}
    job = run(3, [PROGRAMS / "interrupted_call.py", form, str(tmp_path)], environment=environment)
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == 3 and "rank 0 was interrupted" in job.output


@pytest.mark.parametrize(
    "form",
    [
        *quick("attach", "first", "dup", "split", "create_group", "native", "reduce_scatter", "init", "driver"),
        *quick("persistent", "traced"),
    ],
)
def test_an_interruption_comes_after_all_that_belongs_to_a_call(form, tmp_path):
    """Check that an interrupted rank completes every part of the call that other ranks wait for."""
    job = run(2, [PROGRAMS / "interrupted_several_waits.py", form, str(tmp_path)], limit=40)
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == 2 and "rank 0 was interrupted" in job.output


@pytest.mark.parametrize("form", quick("first", "again", "elsewhere", "nonblocking"))
def test_an_error_in_the_middle_makes_the_communicator_unusable(form):
    """Check that later calls are refused, because messages in flight could be mistaken for messages of these calls."""
    job = run(2, [PROGRAMS / "failing_kernel.py", form])
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("raised") == 2 and job.output.count("refused") == 4
