"""Libraries for training that are built on torch.distributed run with the backend `pycoll`."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

pytest.importorskip("torch", reason="torch is not installed")

PROGRAMS = Path(__file__).parent / "programs"


LIBRARIES = {"accelerate": "with_accelerate.py", "lightning_fabric": "with_fabric.py"}


@pytest.mark.once
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("runner", "backend"), quick(([], "pycoll"), (["-m", "pycoll.run", "--torch"], "gloo")))
def test_it_trains(library, runner, backend):
    pytest.importorskip(library, reason=f"{library} is not installed")
    job = run(2, [*runner, PROGRAMS / LIBRARIES[library], backend])
    assert job.code == 0 and job.left == [], job.output
    assert job.output.count("loss") == 1, job.output
