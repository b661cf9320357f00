"""The tuner times each candidate, and joins the times of several passes."""

import pytest

from pycoll.schedule.registry import algorithms_of, find
from pycoll.selection.tuning_file import Candidate
from pycoll.tune.__main__ import Tuner, joined
from pycoll.tune.benchmark_case import MEASURED, Case
from tests.mpi.native import WORLD

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("primitive", MEASURED)
def test_each_candidate_is_run(primitive, monkeypatch):
    """The first call of a candidate runs its algorithm, and the timed call that follows reuses it."""
    ran = []
    monkeypatch.setattr(
        "pycoll.runtime.dispatch.find", lambda name, algorithm: ran.append(algorithm) or find(name, algorithm)
    )
    tuner, case = Tuner(WORLD.Dup()), Case(WORLD, primitive, 1024)
    case.comm = tuner.comm
    names = [*algorithms_of(primitive), "native"]
    for name in names + names[::-1]:
        call = case.call(None)
        tuner._first(call, Candidate(name))()
        assert ran.pop() == name and not ran
        call()
        assert not ran, "found by its very arguments"
    tuner.comm.Free()


def test_passes_are_joined():
    assert joined([{"a": 1.0, "b": 2.0, "c": 9.0}, {"a": 50.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]) == {"a": 3.0, "b": 2.0}
