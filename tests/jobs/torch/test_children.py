"""Processes that multiprocessing starts in a program of pycoll.torch, for example workers of a DataLoader."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

pytest.importorskip("torch", reason="torch is not installed")

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.once
def test_workers_of_a_data_loader_do_not_initialize_mpi(tmp_path):
    job = run(2, [PROGRAMS / "data_loader.py"], environment={"PYCOLL_WATCH": str(tmp_path / "watch")})
    assert job.code == 0 and job.left == [], job.output
    assert job.output.count("fork 0 trying to initialize") == 2
    for method in ("spawn", "forkserver"):
        text = f"{method} 0 this process was started by multiprocessing, and is not a rank of MPI; start each rank"
        assert job.output.count(text) == 2
    assert "MPI initialized: False" in job.output and "MPI initialized: True" not in job.output


@pytest.mark.once
@pytest.mark.parametrize("runner", quick([], ["-m", "pycoll.run", "--torch"]))
def test_persistent_workers_and_processes_of_torch_multiprocessing(runner):
    job = run(2, [*runner, PROGRAMS / "spawned.py"])
    assert job.code == 0 and job.left == [], job.output
    assert job.output.count("read 224.0 2.0 2.0") == 2
