"""Random cases: any primitive and algorithm; on any rank, each buffer is in GPU or host memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base import settings as pycoll_settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES
from tests.drawn import examples
from tests.mpi.api.test_collectives_drawn import cases
from tests.mpi.native import RANK, SIZE, assert_same, inputs, native

from .test_collectives import arguments, produced

pytestmark = pytest.mark.mpi


@examples(80)
@given(
    case=cases().filter(lambda case: case[1] != "native"),
    sides=st.lists(st.booleans(), min_size=2 * SIZE, max_size=2 * SIZE),
)
def test_drawn(together, xp, way, case, sides):
    together(check, xp, *case, sides[2 * RANK : 2 * RANK + 2])


def check(xp, primitive, algorithm, op, dtype, count, root, segment, pipeline, on_gpu):
    before = pycoll_settings.SEGMENT, pycoll_settings.PIPELINE
    configure(segment=segment, pipeline=pipeline)
    try:
        compare(xp, primitive, algorithm, op, dtype, count, root, *on_gpu)
    finally:
        configure(segment=before[0], pipeline=before[1])


def compare(xp, primitive, algorithm, op, dtype, count, root, send_on_gpu, recv_on_gpu):
    """Compare with the native result; the last two arguments say which buffers of this rank are in GPU memory."""
    host = inputs(primitive, count, dtype, seed=count)
    theirs = native(primitive, host, op, root)
    send = produced(xp, host) if send_on_gpu else host.copy()
    given = arguments(primitive, op, root if PRIMITIVES[primitive].rooted else 0)
    if primitive == "bcast":
        ours = pycoll.bcast(send, **given, algorithm=algorithm)
    else:
        recv = None
        if theirs is not None:
            recv = xp.empty(theirs.shape, dtype) if recv_on_gpu else np.empty(theirs.shape, dtype)
        ours = getattr(pycoll, primitive)(send, recv, **given, algorithm=algorithm)
        assert ours is recv
    if theirs is None:
        ours = theirs = np.zeros_like(host)
    assert_same(ours if isinstance(ours, np.ndarray) else ours.get(), theirs, primitive, host, op)
    if primitive != "bcast":
        np.testing.assert_array_equal(send.get() if send_on_gpu else send, host)
