"""The tests of the collectives pass with each executor: without the compiled core, and with the reference executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...launch import run

FILES = ["collectives", "collectives_drawn", "collectives_scan", "collectives_varying", "nonblocking", "requests"]
OF_COMM = ["comm_arguments", "comm_collectives_short", "comm_collectives_forms", "comm_datatypes"]


LONG = pytest.param("python", [*FILES, *OF_COMM], marks=[pytest.mark.once, pytest.mark.slow])


@pytest.mark.parametrize(("executor", "names"), [("reference", FILES), LONG])
def test_collectives(executor, names):
    files = [f"tests/mpi/api/test_{name}.py" for name in names]
    pytest = ["-m", "pytest", "--with-mpi", "-q", "-x", "-m", "not slow", "--hypothesis-profile=quick", *files]
    job = run(2, pytest, environment={"PYCOLL_EXECUTOR": executor})
    assert job.code == 0, job.output
    assert " passed" in job.output


def test_where_the_core_was_not_built():
    job = run(2, [Path(__file__).parent / "programs/without_core.py"])
    assert job.code == 0 and job.output.count("right") == 2, job.output
