"""Programs that call torch.distributed, as users start them."""

import os
import socket
import subprocess
import sys

import pytest

from tests.launch import run

pytest.importorskip("torch", reason="torch is not installed")

REDUCE = """
import torch, torch.distributed as dist, pycoll.torch
dist.init_process_group({arguments})
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size() == {ranks}
dist.destroy_process_group()
"""


@pytest.mark.parametrize("arguments", ['"pycoll"', '"pycoll", init_method="mpi://"', '"cpu:pycoll,cuda:pycoll"'])
def test_ranks_and_addresses_come_from_mpi(arguments):
    program = REDUCE.format(arguments=arguments, ranks=2)
    job = run(2, ["-c", f"for _ in range(2):\n    exec('''{program}''')\nprint('done')"])
    assert job.code == 0, job.output
    assert job.output.count("done") == 2


def test_without_mpiexec():
    """A program on one rank needs neither mpiexec nor variables."""
    done = subprocess.run([sys.executable, "-c", REDUCE.format(arguments='"pycoll"', ranks=1)], timeout=120)
    assert done.returncode == 0


def test_torchrun_is_an_error_that_names_mpiexec():
    """Torchrun makes each process an MPI job of its own."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", REDUCE.format(arguments='"pycoll"', ranks=2)],
            env={**os.environ, **given, "RANK": rank, "LOCAL_RANK": rank},
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
