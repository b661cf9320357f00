"""``python -m pycoll.info``, run from the command line."""

import os
import re
import subprocess
import sys

from tests.launch import ENVIRONMENT, run


def alone(*arguments, **environment):
    """Run ``python ARGUMENTS`` without mpiexec and return the output."""
    known = {**os.environ, **ENVIRONMENT, **environment}
    job = subprocess.run([sys.executable, *arguments], env=known, capture_output=True, text=True, timeout=60)
    assert job.returncode == 0, job.stderr
    return job.stdout + job.stderr


def test_it_says_what_all_ranks_run_on():
    job = run(2, ["-m", "pycoll.info"], 60)
    assert job.code == 0, job.output
    assert job.output.count("pycoll: ") == 1 and "\nranks: 2\n" in job.output
    assert re.search(r"memory that ranks of a host share: (used|not used: .+)\n", job.output), job.output
    assert "warning" not in job.output


def test_it_warns_of_unknown_variables():
    job = run(2, ["-m", "pycoll.info"], 60, environment={"PYCOLL_ALREDUCE": "ring"})
    assert job.code == 0, job.output
    warning = (
        "warning: the environment variable PYCOLL_ALREDUCE is not known and has no effect; is it PYCOLL_ALLREDUCE?"
    )
    assert job.output.count(warning) == 1, job.output


def test_help_is_printed_once():
    job = run(2, ["-m", "pycoll.info", "--help"], 60)
    assert job.code == 0, job.output
    assert job.output.count("usage: python -m pycoll.info") == 1
    assert "ranks:" not in job.output


def test_options_that_there_are_not():
    job = run(2, ["-m", "pycoll.info", "--verbose"], 60)
    assert job.code != 0
    assert job.output.count("python -m pycoll.info: unrecognized arguments: --verbose") == 1


def test_ranks_that_run_alone_are_reported():
    output = alone("-m", "pycoll.info", OMPI_COMM_WORLD_SIZE="4")
    assert "problem: COMM_WORLD has one rank, but OMPI_COMM_WORLD_SIZE is 4: each process runs alone" in output


ALONE = """
import numpy as np, pycoll
for _ in range(3):
    pycoll.allreduce(np.ones(3))
"""


def test_the_first_collective_of_such_a_rank_warns():
    output = alone("-c", ALONE, OMPI_COMM_WORLD_SIZE="4")
    assert output.count("RuntimeWarning: COMM_WORLD has one rank, but OMPI_COMM_WORLD_SIZE is 4") == 1, output


def test_another_mpiexec_on_path(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "mpiexec").chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    output = alone("-m", "pycoll.info", PATH=path)
    assert f"problem: mpiexec is {tmp_path}/bin/mpiexec, which may not belong to the MPI library" in output
