"""The tests of the collectives pass with the reference executor too."""

from __future__ import annotations

from ...launch import run

FILES = ["collectives", "collectives_drawn", "collectives_scan", "collectives_varying", "nonblocking", "requests"]


def test_collectives():
    files = [f"tests/mpi/api/test_{name}.py" for name in FILES]
    pytest = ["-m", "pytest", "--with-mpi", "-q", "-x", "-m", "not slow", *files]
    job = run(3, pytest, environment={"PYCOLL_EXECUTOR": "reference"})
    assert job.code == 0, job.output
    assert " passed" in job.output
