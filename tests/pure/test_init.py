"""Schedules, proofs and simulation without MPI, and the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

import pycoll
from tests.launch import alone


def test_schedules_do_not_load_mpi():
    done = alone([Path(__file__).parent / "programs" / "schedules_alone.py"])
    assert done.returncode == 0, done.stderr


def test_public_names():
    assert {"allreduce", "bcast", "AVG", "abort_on_exception", "sendrecv", "algorithms"} <= set(dir(pycoll))
    with pytest.raises(AttributeError, match=r"^module 'pycoll' has no attribute 'allredcue'$"):
        pycoll.allredcue  # noqa: B018


def test_torch_is_not_loaded():
    program = "import sys, pycoll; from pycoll import parallel, simulate; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
