"""The tuner times each candidate, and joins the times of several passes."""

import pytest

from pycoll.base import settings
from pycoll.runtime.attach import attach
from pycoll.runtime.open_core import why_not_shared, why_unusable
from pycoll.schedule.registry import algorithms_of, find
from pycoll.selection.tuning_file import Candidate
from pycoll.tune.__main__ import REGISTERED, Tuner, joined
from pycoll.tune.benchmark_case import MEASURED, Case
from tests.mpi.native import SIZE, WORLD

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
        assert not ran or why_unusable(), "found by its plan, which only the core keeps"
        ran.clear()
    tuner.comm.Free()


@pytest.mark.skipif(SIZE == 1 or bool(why_not_shared()), reason="the ranks do not share memory")
@pytest.mark.parametrize("primitive", MEASURED)
def test_registered_buffers_are_measured(primitive):
    comm = WORLD.Dup()
    tuner = Tuner(comm)
    for size in (8, 4096):
        _, seconds = tuner.seconds(primitive, size, 0.01)
        assert all(time > 0 for time in seconds.values())
        assert (REGISTERED in seconds) == (primitive != "barrier")
    assert attach(tuner.registering).registered.nbytes == 0, "the buffers are freed"
    assert not attach(comm).registered.areas, "calls on ordinary memory are measured without registered memory"
    tuner.registering.Free()
    comm.Free()


def test_where_ranks_share_no_memory(monkeypatch):
    monkeypatch.setattr(settings, "REGISTERED", False)
    comm = WORLD.Dup()
    tuner = Tuner(comm)
    assert REGISTERED not in tuner.seconds("allreduce", 4096, 0.01)[1]
    tuner.registering.Free()
    assert REGISTERED not in Tuner(comm, with_registered=False).seconds("allreduce", 4096, 0.01)[1]
    comm.Free()


def test_passes_are_joined():
    assert joined([{"a": 1.0, "b": 2.0, "c": 9.0}, {"a": 50.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]) == {"a": 1.5, "b": 2.0}
