"""A schedule from a file runs on real ranks, as an algorithm of its own."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.schedule.document import algorithm_of
from pycoll.schedule.formats import FORMATS, parse
from pycoll.schedule.formats.plan import plan_of
from pycoll.schedule.registry import PRIMITIVES, find, register_schedule

COMM = MPI.COMM_WORLD


@pytest.fixture(params=["json", "msccl", "mscclpp", "chakra"])
def imported(request):
    """The name of a ring for all ranks, registered for the time of a test."""
    found = FORMATS[request.param].write(plan_of(find("allreduce", "ring"), COMM.size))
    contents = [found.encode()] if isinstance(found, str) else found
    register_schedule(algorithm_of(parse(contents, FORMATS[request.param].ending, "imported"), "imported"))
    yield pycoll.AlgorithmName("imported")
    del PRIMITIVES["allreduce"].algorithms["imported"]


def test_it_runs(imported):
    data = np.random.default_rng(COMM.rank).random(1000)
    mine, ring, expected = (np.empty(1000) for _ in range(3))
    pycoll.allreduce(data, mine, algorithm=imported)
    pycoll.allreduce(data, ring, algorithm="ring")
    COMM.Allreduce(data, expected)
    assert (mine == ring).all()
    np.testing.assert_allclose(mine, expected)


@pytest.mark.skipif(COMM.size == 1, reason="needs two ranks")
def test_other_numbers_of_ranks_are_refused(imported):
    alone = COMM.Split(COMM.rank)
    with pytest.raises(ValueError, match=r"imported is a schedule for .* ranks, not for 1 rank$"):
        pycoll.allreduce(np.ones(8), comm=alone, algorithm=imported)
    alone.Free()


@pytest.mark.parametrize("format", ["msccl", "mscclpp"])
@pytest.mark.parametrize(
    ("primitive", "name"), [("allreduce", "rabenseifner"), ("allgather", "bruck"), ("alltoall", "tree")]
)
def test_other_collectives_run(primitive, name, format):
    text = FORMATS[format].write(plan_of(find(primitive, name), COMM.size))
    register_schedule(algorithm_of(parse([text.encode()], FORMATS[format].ending, "other"), "other"))
    try:
        data = np.random.default_rng(COMM.rank).integers(0, 100, 12 * COMM.size)
        data = data[:12] if primitive == "allgather" else data
        mine = getattr(pycoll, primitive)(data, algorithm=pycoll.AlgorithmName("other"))
        np.testing.assert_array_equal(mine, getattr(pycoll, primitive)(data, algorithm="native"))
    finally:
        del PRIMITIVES[primitive].algorithms["other"]
