"""Random collectives beside those of mpi4py, with signals, threads and forks (tests/soak.py)."""

import pytest

from tests.launch import run


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_random_calls(ranks):
    job = run(ranks, ["-m", "tests.soak", "--calls", "2000", "--seed", str(ranks)])
    assert job.code == 0 and "calls were right" in job.output and "at first" not in job.output, job.output
    assert not job.left
