"""The timing of calls as programs write them."""

import pytest
from mpi4py import MPI

import pycoll
from pycoll.bench import calls
from pycoll.runtime.attach import attach

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("registered", [False, True], ids=["ordinary", "registered"])
@pytest.mark.parametrize("typed", [False, True], ids=["arrays", "typed"])
@pytest.mark.parametrize("call", [*calls.CALLS, *calls.NAMED])
def test_every_call_is_timed(call, typed, registered, monkeypatch):
    monkeypatch.setattr(calls, "BLOCK", 1e-4)
    comm = pycoll.Comm(MPI.COMM_WORLD.Dup())
    record = calls.measure(MPI.COMM_WORLD, comm, call, 1 << 16, 0.0, registered, typed)
    assert record.keys() == {"call", "bytes", "mpi", "comm", "mpi_comm", "mpi_min", "comm_min"}
    assert record["call"] == call and all(value > 0 for name, value in record.items() if name not in ("call", "bytes"))
    assert attach(comm).registered.live == 0, "registered buffers are not freed"
    comm.Free()


@pytest.mark.parametrize("call", calls.MAKING)
def test_communicators_are_made_and_freed(call, monkeypatch):
    monkeypatch.setattr(calls, "BLOCK", 1e-4)
    record = calls.measure(MPI.COMM_WORLD, pycoll.Comm(MPI.COMM_WORLD), call, 0, 0.0, False)
    assert record["mpi"] > 0 and record["comm"] > 0


def test_the_table_has_a_column_for_each_size():
    records = [{"call": "Barrier", "bytes": 0, "mpi_comm": 2.0}, {"call": "Bcast", "bytes": 4096, "mpi_comm": 1.5}]
    lines = calls.ratios(records, [8, 4096]).splitlines()
    assert lines[0].split() == ["call", "8", "B", "4", "KiB"]
    assert [line.split() for line in lines[2:]] == [["Barrier", "2.00", "-"], ["Bcast", "-", "1.50"]]
