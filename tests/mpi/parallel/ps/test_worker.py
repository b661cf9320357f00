"""Messages of workers that outlive the program's reference to the driver."""

import gc
import weakref

import numpy as np
import pytest

from pycoll.parallel import SGD, ParameterServer
from tests.mpi.native import WORLD

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("mode, options", [("bounded", {"staleness": 1}), ("async", {})])
def test_memory_of_a_push_without_an_answer(mode, options):
    """Check that it is kept, because the answer arrives in it, and that it is freed with the driver."""
    ps = ParameterServer({"w": np.ones(5)}, optimizer=lambda p: SGD(p, lr=1.0), mode=mode, colocated=True, **options)
    kept = weakref.ref(ps)
    ps.push({"w": np.ones(5)})
    del ps  # as after an exception
    gc.collect()
    assert kept() is not None
    kept().finish()
    kept().free()
    gc.collect()
    assert kept() is None
    WORLD.Barrier()
