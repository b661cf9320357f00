"""Benchmark cases: calls of pycoll and MPI on the same input, and the comparison of their results."""

import numpy as np
import pytest

import pycoll
from pycoll.schedule.registry import PRIMITIVES
from pycoll.tune.benchmark_case import FORMS, IN_PLACE, MEASURED, Case
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("primitive", MEASURED)
def test_pycolls_call_and_mpis_do_the_same(primitive, form):
    pycoll.attach(WORLD)
    for in_place in (False, True) if primitive in IN_PLACE else (False,):
        for op in ("sum", "prod", "avg") if primitive == "allreduce" else ("max",):
            case = Case(WORLD, primitive, 4096, np.dtype("f8"), in_place, op, root=SIZE - 1)
            blocks = 1 if PRIMITIVES[primitive].cuts else SIZE
            assert primitive == "barrier" or case.nbytes == case.chosen_by * blocks <= 4096
            ours, theirs = case.call(None, form), case.call_native(form)
            assert case.wrong(ours, theirs) == 0
            assert case.wrong(ours, case.call_naive()) == 0
            if case.ours is not None and case.count and not (primitive == "exscan" and RANK == 0):
                assert np.count_nonzero(case.ours), "it was run on numbers"
            case.free()


def test_wrong_elements_are_counted():
    case = Case(WORLD, "allreduce", 400)

    def spoilt():
        case.call("ring")()
        case.ours[2:5] += 1

    assert case.wrong(spoilt, case.call_native()) == 3 * SIZE
