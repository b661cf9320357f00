"""Random cases: any primitive and algorithm with any size, root, dtype and segment length, in place or not.

All ranks draw the same cases, because the profile is derandomised; the data depends on the rank.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base import settings as pycoll_settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.drawn import examples
from tests.mpi.native import KINDS, MANY, OPERATIONS, SIZE

from .test_collectives import check_movement, check_reduction

pytestmark = pytest.mark.mpi
EVEN = [name for name, primitive in PRIMITIVES.items() if name != "barrier" and not primitive.varies]
PAIRS = [(name, algorithm) for name in EVEN for algorithm in [*algorithms_of(name), "native"]]
DTYPES = ["int32", "int64", "uint64", "float32", "float64", "complex64", "complex128", "bool"]
MOST = 512  # segments of a vector: MPICH takes minutes to match tens of thousands of receives on eight ranks


@st.composite
def cases(draw):
    primitive, algorithm = draw(st.sampled_from(PAIRS))
    op, dtype = None, draw(st.sampled_from(DTYPES))
    if PRIMITIVES[primitive].reduces:
        op = draw(st.sampled_from(OPERATIONS[:-1] if "scan" in primitive else OPERATIONS))  # no "avg" for scans
        dtype = draw(st.sampled_from([name for name in DTYPES if np.dtype(name).kind in KINDS[op]]))
    count, root = draw(st.integers(0, 3000)), draw(st.integers(0, SIZE - 1))
    shortest = max(16, SIZE * count * np.dtype(dtype).itemsize // MOST)
    segment, pipeline = (max(shortest, draw(st.integers(16, 5000))) for _ in range(2))
    return primitive, algorithm, op, dtype, count, root, segment, pipeline


@examples(60 if MANY else 300)
@given(case=cases())
def test_drawn(together, case):
    together(check, *case)


def check(primitive, algorithm, op, dtype, count, root, segment, pipeline):
    before = pycoll_settings.SEGMENT, pycoll_settings.PIPELINE
    configure(segment=segment, pipeline=pipeline)
    try:
        if op:
            check_reduction(primitive, algorithm, op, dtype, count, root)
        else:
            check_movement(primitive, algorithm, dtype, count, root)
    finally:
        configure(segment=before[0], pipeline=before[1])


def test_automatic_choice_at_all_sizes():
    for count in (0, 1, 100, 5_000, 50_000):
        values = np.arange(count * SIZE, dtype="i8")
        np.testing.assert_array_equal(pycoll.allreduce(values), values * SIZE)
        np.testing.assert_array_equal(pycoll.allgather(values[:count]).reshape(-1), np.tile(values[:count], SIZE))
        np.testing.assert_array_equal(pycoll.bcast(values.copy(), SIZE - 1), values)
        assert pycoll.reduce_scatter(values).size == count
        assert pycoll.alltoall(values).size == count * SIZE
        pycoll.reduce(values, root=SIZE - 1)
        pycoll.gather(values[:count])
        pycoll.scatter(values, np.empty(count, "i8"))
        pycoll.barrier()
