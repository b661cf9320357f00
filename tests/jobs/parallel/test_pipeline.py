"""PYCOLL_TIMEOUT with a pipeline: errors name the waiting rank and what it waits for."""

from pathlib import Path

import pytest

from tests.launch import output_of

PROGRAM = Path(__file__).parent / "programs" / "abandoned.py"


@pytest.mark.parametrize(
    "where, leaver, steps, text",
    [
        ("forward", 0, 0, "rank 0 to send the activation of micro-batch 0 for chunks[0]"),
        ("forward", 0, 1, "rank 0 to send the activation of micro-batch 0 for chunks[0]"),
        ("forward", 1, 0, "rank 1 to send the gradient of micro-batch 0 for chunks[0]"),
        ("backward", 1, 1, "rank 1 to send the gradient of micro-batch 0 for chunks[0]"),
    ],
)
def test_a_rank_that_leaves_a_pipeline(where, leaver, steps, text):
    output_of(2, PROGRAM, "pipeline", "blocking", where, str(leaver), str(steps), text)
