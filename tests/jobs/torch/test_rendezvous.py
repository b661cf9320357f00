"""Programs that call torch.distributed, as users start them."""

import configparser
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import ENVIRONMENT, alone, run
from tests.quick import once, quick

pytest.importorskip("torch", reason="torch is not installed")

PROGRAMS = Path(__file__).parent / "programs"

REDUCE = PROGRAMS / "all_reduce.py"


@pytest.mark.parametrize(
    "arguments", [["pycoll"], *map(once, [["pycoll", "mpi://"], ["cpu:pycoll,cuda:pycoll"]])], ids=str
)
def test_ranks_and_addresses_come_from_mpi(arguments):
    job = run(2, [REDUCE, "2", *arguments])
    assert job.code == 0, job.output
    assert job.output.count("done") == 2


def test_importing_leaves_mpi_alone():
    job = run(2, [PROGRAMS / "import_only.py"])
    assert job.code == 0, job.output
    assert sorted(re.findall("sum .*", job.output)) == [f"sum 2.0 {rank} 2 {rank} 2" for rank in range(2)]


@pytest.mark.once
@pytest.mark.parametrize(("backend", "module"), [("pycoll", "pycoll.torch.process_group"), ("gloo", "torch")])
def test_the_entry_point_is_enough(tmp_path, monkeypatch, backend, module):
    """Torch finds the backend; where a variable of ``env://`` is missing, the job starts nevertheless."""
    entry = configparser.ConfigParser()
    entry.read(Path(__file__).parents[3] / "setup.cfg")
    folder = tmp_path / "installed-0.dist-info"
    folder.mkdir()
    lines = entry["options.entry_points"]["torch.backends"].strip()
    (folder / "entry_points.txt").write_text(f"[torch.backends]\n{lines}\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 0\n")
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"), str(tmp_path)]))
    job = run(2, [PROGRAMS / "without_import.py", backend], environment={"PYTHONPATH": path})
    assert job.code == 0, job.output
    assert len(re.findall(f"sum 2.0 {module}", job.output)) == 2


@pytest.mark.once
def test_some_ranks_alone_need_addresses():
    """A group of some ranks of COMM_WORLD cannot ask MPI, whose other ranks do not take part."""
    job = run(2, [PROGRAMS / "group_of_one.py"])
    assert job.output.count("the process group has 1 ranks, and MPI 2: set MASTER_ADDR and MASTER_PORT") == 2


def test_without_mpiexec():
    """A program on one rank needs neither mpiexec nor variables."""
    done = alone([REDUCE, "1", "pycoll"])
    assert done.returncode == 0, done.stderr


@pytest.mark.once
@pytest.mark.parametrize("state", quick("used", "imported"))
def test_a_process_that_uses_the_backend_can_start_a_job(state):
    """The variables of a notebook are not those of the ranks it starts."""
    done = alone([PROGRAMS / "starting_a_job.py", state])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_number_of_ranks_that_is_not_that_of_mpi():
    job = run(2, [REDUCE, "2", "pycoll"], environment={"WORLD_SIZE": "1"})
    assert "this process has rank 1 of 1 in torch.distributed, but rank 1 of 2 in MPI" in job.output
    assert "IndexError" not in job.output


@pytest.mark.once
def test_torchrun_is_an_error_that_names_mpiexec():
    """Torchrun makes each process an MPI job of its own."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
    processes = [
        subprocess.Popen(
            [sys.executable, REDUCE, "2", "pycoll"],
            env={**os.environ, **ENVIRONMENT, **given, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    for rank, process in enumerate(processes):
        _, errors = process.communicate(timeout=120)
        assert process.returncode != 0
        assert (
            f"rank {rank} of 2 in torch.distributed, but rank 0 of 1 in MPI; start the program with `mpiexec" in errors
        )
