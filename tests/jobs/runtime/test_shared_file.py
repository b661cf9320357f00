"""Ranks are killed while they allocate registered memory."""

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.launch import run

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="ranks share no memory")
def test_nothing_is_left_in_shared_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for rank in 0, 1:
            job = run(
                2, [PROGRAMS / "killed_while_allocating.py", directory, str(rank), str(random.uniform(0.0, 0.5))], 60
            )
            assert job.code and not job.timed_out and "Error" not in job.output, job.output
            assert os.listdir(directory) == []
