"""Run the program that type checkers must accept (see tests/pure/test_init_types.py)."""

import pytest

from tests.launch import run
from tests.quick import quick


@pytest.mark.parametrize("ranks", quick(2, 3))
def test_a_program_that_uses_all_public_names(ranks):
    job = run(ranks, ["-m", "tests.typed_program"], 120)
    assert job.code == 0 and job.output.count("all public names used") == 1, job.output
