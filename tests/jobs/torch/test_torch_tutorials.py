"""The public examples of PyTorch run with the name of the backend changed, and compute what they compute with gloo."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

pytest.importorskip("torch", reason="torch is not installed")

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.once
@pytest.mark.parametrize("program", quick("ddp_tutorial.py", "sharding_tutorials.py"))
def test_with_both_backends(program, tmp_path):
    outputs = []
    for backend in ("gloo", "pycoll"):
        folder = tmp_path / backend
        folder.mkdir()
        job = run(2, [PROGRAMS / program, backend, folder], environment={"PYTHONWARNINGS": "ignore"})
        assert job.code == 0 and job.left == [], job.output
        outputs.append([line for line in job.output.splitlines() if line.endswith("]")])
    assert len(outputs[0]) >= 3 and outputs[0] == outputs[1]
