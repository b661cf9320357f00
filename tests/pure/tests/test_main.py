"""``python -m tests``: the directories that it runs."""

import subprocess
import sys

import pytest


def run(*options):
    command = [sys.executable, "-m", "tests", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("folders", ["gpu", "pure,", "pure,mip"])
def test_unknown_directories_are_refused(folders):
    done = run("--only", folders)
    assert done.returncode == 2 and "is not one of jobs, pure, slurm, mpi" in done.stderr, done.stderr


def test_only_what_was_chosen_runs():
    done = run("--only", "slurm", "--", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(":")] == ["slurm:"]


def test_tests_that_need_no_mpi_run_beside_jobs_and_are_printed_after_them():
    done = run("--only", "pure,jobs", "--", "--collect-only", "-k", "unknown_directories or a_wrong_choice")
    printed = [line.split("::")[0] for line in done.stdout.splitlines() if line.endswith(":") or "::" in line]
    files = "tests/jobs/test_run.py", *3 * ["tests/pure/tests/test_main.py"]
    assert printed == ["jobs:", files[0], "pure:", *files[1:]], done.stdout + done.stderr
