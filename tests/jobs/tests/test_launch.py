"""tests.launch, which runs the jobs of the tests."""

from pathlib import Path

from tests.launch import run


def test_each_job_has_its_own_directory_of_temporary_files():
    first, second = (Path(run(1, ["-c", "import os; print(os.environ['TMPDIR'])"]).output.strip()) for _ in range(2))
    assert first != second
    assert not first.exists() and not second.exists()
