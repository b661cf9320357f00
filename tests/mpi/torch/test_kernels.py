import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import ml_dtypes
import numpy as np
from mpi4py import MPI

import pycoll
import pycoll.torch
from pycoll.base import settings

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_numbers_are_those_of_numpy(monkeypatch, op, dtype):
    random = np.random.default_rng(MPI.COMM_WORLD.rank)
    given = random.standard_normal(3001).astype(dtype)
    given[:2] = np.inf, np.nan
    ours = pycoll.allreduce(given, op=op, algorithm="ring")
    monkeypatch.setattr(settings, "EXECUTOR", "reference")
    comm = MPI.COMM_WORLD.Dup()
    expected = pycoll.allreduce(given, op=op, algorithm="ring", comm=comm)
    comm.Free()
    assert ours.view(np.int16)[2:].tolist() == expected.view(np.int16)[2:].tolist()
    assert np.isnan(ours[1].astype(np.float32))
