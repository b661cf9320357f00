"""When one rank fails, the job ends soon with the traceback of that rank, and no process is left."""

import shutil
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import ULFM, quick

PROGRAMS = Path(__file__).parent / "programs"
FAILING = PROGRAMS / "failing.py"


def ends_soon(arguments, *expected, ranks=3, options=()):
    job = run(ranks, arguments, options=options)
    assert not job.timed_out and job.code != 0 and job.left == []
    for text in expected:
        assert text in job.output
    return job


def test_an_uncaught_exception_aborts_the_job():
    ends_soon([FAILING, "exception"], "rank 1 of 3 failed", "RuntimeError: the second rank has had enough")


def test_the_same_error_of_several_ranks_is_printed_once():
    program = PROGRAMS / "same_errors.py"
    output = ends_soon(["-m", "pycoll.run", str(program)], ranks=4).output
    assert output.count("Traceback") == 2 and output.count("ValueError: mismatch in send count 3") == 1
    assert "rank 1 of 4 failed and ends the job" in output and "KeyError: 'that of rank 1'" in output
    assert "rank 3 of 4 failed with the same error as rank 0" in output
    assert output.count(f'File "{program}", line 14, in work') == 1 and "<string>" not in output
    assert "pycoll/" not in output.replace(str(program), "")


@pytest.mark.ulfm
def test_with_fault_tolerance_too():
    ends_soon([FAILING, "exception"], "RuntimeError: the second rank has had enough", options=ULFM)


def test_a_bad_argument_on_one_rank_aborts_the_job():
    ends_soon([FAILING, "arguments"], "ValueError: recvbuf has 4 elements, but 3 are received")


@pytest.mark.slow
def test_an_exception_in_a_thread_aborts_the_job():
    ends_soon([FAILING, "thread"], "RuntimeError: the second rank has had enough")


def test_a_thread_that_exits_does_not_abort_the_job():
    job = run(2, [PROGRAMS / "exiting_thread.py"])
    assert job.code == 0 and job.output.count("came to its end") == 2, job.output


def suite_of(tmp_path, name):
    """Return the arguments that run the tests of a file as the tests of pycoll run."""
    suite = shutil.copy(PROGRAMS / f"{name}.py", tmp_path / "test_suite.py")
    return ["-m", "pytest", "-p", "tests.conftest", "--with-mpi", "-c", "setup.cfg", str(suite)]


@pytest.mark.parametrize(
    "name",
    [
        "failing_suite",
        pytest.param("failing_drawn_suite", marks=pytest.mark.slow),
        pytest.param("broken_suite", marks=pytest.mark.slow),
    ],
)
def test_a_failing_test_aborts_the_run(tmp_path, name):
    ends_soon(suite_of(tmp_path, name), "rank 1 of 3 failed", "the second rank has had enough")


@pytest.mark.slow
def test_a_hanging_test_ends_the_run(tmp_path):
    expected = "rank 0 of 3: Timeout after 3 s in", "test_that_hangs", "pycoll.barrier()"
    assert "_pytest" not in ends_soon(suite_of(tmp_path, "hanging_suite"), *expected).output


@pytest.mark.slow
def test_the_launcher_ends_what_runs_too_long():
    job = run(2, ["-c", "from mpi4py import MPI; import time; time.sleep(1000)"], limit=3)
    assert job.timed_out


def test_what_is_left_is_found_and_ended():
    orphan = (
        "from subprocess import DEVNULL, Popen;"
        "Popen(['sleep', '1000'], start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)"
    )
    job = run(1, ["-c", orphan], patience=1)
    assert len(job.left) == 1


@pytest.mark.parametrize("ranks", quick(2, 1))
def test_exit_codes_pass(ranks):
    assert run(ranks, ["-c", "import pycoll; pycoll.abort_on_exception(); pycoll.barrier()"]).code == 0
