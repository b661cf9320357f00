"""The timing of calls as programs write them."""

import pytest
from mpi4py import MPI

import pycoll
from bench import calls
from pycoll.runtime.attach import attach

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("registered", [False, True], ids=["ordinary", "registered"])
@pytest.mark.parametrize("call", calls.CALLS)
def test_every_call_is_timed(call, registered, monkeypatch):
    monkeypatch.setattr(calls, "BLOCK", 1e-4)
    comm = pycoll.Comm(MPI.COMM_WORLD.Dup())
    record = calls.measure(MPI.COMM_WORLD, comm, call, 1 << 16, 0.0, registered)
    assert record.keys() == {*calls.COLUMNS, *(f"{way}_min" for way in calls.WAYS)}
    assert record["call"] == call and all(value > 0 for name, value in record.items() if name not in ("call", "bytes"))
    assert attach(comm).registered.live == 0, "registered buffers are not freed"
    comm.Free()
