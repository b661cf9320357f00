"""Signal handlers that raise exceptions in collectives on registered buffers, and on others beside them."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    "memory, ranks",
    quick(("registered", 2), ("messages", 2), ("ordinary", 2), ("background", 2), ("traced", 2), ("hosts", 4)),
)
def test_interruptions_change_no_result(memory, ranks, tmp_path):
    """Check that a call is either not begun or complete when it raises the exception of a handler."""
    environment = {"PYCOLL_NATIVE": "1"} | ({"PYCOLL_TRACE": str(tmp_path)} if memory == "traced" else {})
    job = run(ranks, [PROGRAMS / "interrupted_registered.py", memory], environment=environment)
    assert job.code == 0 and not job.timed_out, job.output
    assert job.output.count("right") == ranks
