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
    assert done.returncode == 2 and "is not one of pure, jobs, slurm, mpi" in done.stderr, done.stderr


def test_only_what_was_chosen_runs():
    done = run("--only", "slurm", "--", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(":")] == ["slurm:"]
