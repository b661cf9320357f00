"""Found schedules run on real ranks."""

import numpy as np
import pytest

import pycoll
from pycoll.schedule.registry import PRIMITIVES
from pycoll.synthesize import SERVED, synthesize
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="needs two ranks")]


@pytest.mark.parametrize("primitive", SERVED)
@pytest.mark.parametrize("chunks", [1, 2])
def test_it_gives_the_results_of_mpi(primitive, chunks):
    kind = PRIMITIVES[primitive]
    chunks, root = chunks if kind.cuts else 1, SIZE - 1 if kind.rooted else 0
    synthesize(f"torus:{SIZE}", primitive, nbytes=1 << 16, chunks=chunks, root=root, seeds=1, name="found").register()
    name = pycoll.AlgorithmName("found")
    data = np.random.default_rng(RANK).integers(0, 1000, SIZE * 1001)
    try:
        if primitive == "bcast":
            expected = data.copy()
            WORLD.Bcast(expected, root)
            pycoll.bcast(data, root=root, algorithm=name)
            assert (data == expected).all()
            return
        shape = {"allgather": SIZE * data.size, "allreduce": data.size, "reduce_scatter": 1001}[primitive]
        found, expected = np.empty(shape, int), np.empty(shape, int)
        getattr(pycoll, primitive)(data, found, algorithm=name)
        native = {"allgather": WORLD.Allgather, "allreduce": WORLD.Allreduce}
        native.get(primitive, WORLD.Reduce_scatter_block)(data, expected)
        assert (found == expected).all()
    finally:
        del kind.algorithms["found"]
