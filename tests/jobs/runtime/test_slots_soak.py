"""Random collectives beside those of mpi4py, with signals, threads and forks (tests/soak.py)."""

from pathlib import Path

import pytest

from tests.launch import run

DIFFERING = Path(__file__).parent / "programs/differing.py"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_random_calls(ranks):
    job = run(ranks, ["-m", "tests.soak", "--calls", "2000", "--seed", str(ranks)])
    assert job.code == 0 and "calls were right" in job.output and "at first" not in job.output, job.output
    assert not job.left


@pytest.mark.once
@pytest.mark.parametrize(
    "what", ["core", "PYCOLL_SHARED_MEMORY=0", "PYCOLL_EXECUTOR=python", "PYCOLL_NATIVE=0"], ids=lambda what: what[-15:]
)
def test_random_calls_of_ranks_that_differ(what):
    job = run(3, [DIFFERING, what, "--calls", "300", "--threads", "0"])
    assert job.code == 0 and "calls were right" in job.output, job.output
