from functools import reduce

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import ml_dtypes
import numpy as np

import pycoll
from pycoll.torch import kernels
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", UFUNCS)
def test_numbers_are_those_of_numpy(op, dtype):
    kernels.register()  # as when a process group is created
    random = np.random.default_rng(RANK)
    given = random.standard_normal(3001).astype(dtype)
    given[:2] = np.inf, np.nan
    ours = pycoll.allreduce(given, op=op, algorithm="naive")  # in the order of the ranks
    expected = reduce(UFUNCS[op], WORLD.allgather(given))
    if op == "avg":
        expected = expected / dtype(SIZE)
    assert ours.dtype == expected.dtype == dtype
    assert ours[2:].view(np.int16).tolist() == expected[2:].view(np.int16).tolist()
    assert ours[0] == expected[0] == np.inf and np.isnan(ours[1].astype(np.float32))
