"""Traces of real runs can be parsed, are nested correctly, and contain the messages of the schedules."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.runtime.recording import phases, recorder, steps
from pycoll.schedule.proof import prove
from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.trace import Passes, clocks, session
from pycoll.trace.reading import read
from tests.mpi.native import RANK, SIZE, WORLD
from tests.tracing import arrows, named, sent, whole

pytestmark = pytest.mark.mpi
N = 12 * SIZE  # elements of a vector
CALLS = [
    "allreduce.ring",
    "allreduce.recursive_doubling",
    "allreduce.rabenseifner",
    "allreduce.double_tree",
    "bcast.tree",
    "reduce.naive",
    "reduce_scatter.pairwise",
    "allgather.bruck",
    "alltoall.pairwise",
    "scan.ring",
    "barrier.dissemination",
]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let all ranks take part in the last measurement of the clocks, however late they are."""
    monkeypatch.setattr(session, "PATIENCE", 200)


def arguments(primitive):
    """Return the buffers, and a function that returns the bytes of a block for a number of parts of the vector."""
    if primitive == "barrier":
        return (), lambda parts: 0
    if primitive == "bcast":
        return (np.ones(N),), lambda parts: 8 * N / parts
    whole_vector = PRIMITIVES[primitive].cuts
    return (np.ones(N), None), lambda parts: 8 * N / parts if whole_vector or primitive != "allgather" else 8 * N


def run_all_forms(name):
    primitive, _, algorithm = name.partition(".")
    buffers, _ = arguments(primitive)
    getattr(pycoll, primitive)(*buffers, algorithm=algorithm)
    getattr(pycoll, f"i{primitive}")(*buffers, algorithm=algorithm).wait()
    with getattr(pycoll, f"{primitive}_init")(*buffers, algorithm=algorithm) as collective:
        collective.Start()


@pytest.mark.parametrize("name", CALLS)
def test_messages_are_those_of_the_schedule(directory, name):
    with pycoll.trace(directory):
        run_all_forms(name)
    WORLD.Barrier()
    events = whole(directory)
    primitive, _, algorithm = name.partition(".")
    known, (_, block) = find(primitive, algorithm), arguments(primitive)
    parts = known.parts(SIZE)
    counts = prove(known, SIZE, nbytes=lambda _: block(parts))
    for rank in range(SIZE):
        assert len(sent(events, rank)) == 3 * counts.messages[rank]
        assert sum(sent(events, rank)) == pytest.approx(3 * counts.sent[rank])
        assert named(events, "collective", "X", rank) == [name]
        assert named(events, "collective", "b", rank).count(name) == 2
    drawn = arrows(events)
    assert len(drawn) == 3 * sum(counts.messages)
    for (begin, source, send), (end, to, receive) in drawn:
        assert begin < end and (send, receive) == (f"send to {to}", f"from {source}")


def test_nothing_is_left_of_it_in_later_calls(directory):
    vector, result = np.ones(N), np.empty(N)
    with pycoll.trace(directory):
        pycoll.allreduce(vector, result, algorithm="ring")
        pycoll.iallreduce(vector, result, algorithm="ring").wait()
    WORLD.Barrier()
    recorded = whole(directory)
    assert recorded
    pycoll.allreduce(vector, result, algorithm="ring")
    pycoll.iallreduce(vector, result, algorithm="ring").wait()
    WORLD.Barrier()
    assert whole(directory) == recorded


def test_many_in_flight_on_several_communicators(directory):
    with pycoll.trace(directory):
        half = pycoll.Comm(WORLD).Split(RANK % 2)
        pycoll.attach(half)
        requests = [pycoll.iallreduce(np.ones(N), comm=comm) for comm in (WORLD, half) for _ in range(3)]
        pycoll.allreduce(np.ones(N), algorithm="ring", comm=half)
        with pycoll.trace.phase("meanwhile"):
            pycoll.allreduce(np.ones(N), algorithm="native")
        pycoll.waitall(requests)
    half.Free()
    WORLD.Barrier()
    events = whole(directory)
    for rank in range(SIZE):
        assert {"allreduce.ring", "allreduce.native"} <= set(named(events, "collective", "X", rank))
        assert "meanwhile" in named(events, "phase", "X", rank)
        assert "native" in named(events, "step", "X", rank)
        assert any(name.startswith("allreduce.") for name in named(events, "collective", "b", rank))


def test_messages_name_ranks_of_the_whole_job(directory):
    half = pycoll.Comm(WORLD).Split(RANK % 2)
    with pycoll.trace(directory):
        half.Barrier(algorithm="dissemination")
    half.Free()
    WORLD.Barrier()
    events = whole(directory)
    for rank in range(SIZE):
        peers = [int(name.removeprefix("to ")) for name in named(events, "message", "b", rank)]
        assert all(peer % 2 == rank % 2 and peer != rank for peer in peers)
        assert peers or len(range(rank % 2, SIZE, 2)) == 1


def test_an_exception_on_one_rank_leaves_a_trace(directory, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    vector = np.ones(N)

    def job():
        with pycoll.trace(directory):
            pycoll.allreduce(vector, algorithm="ring")
            if RANK == SIZE - 1:
                raise KeyError("this one")

    if RANK == SIZE - 1:
        with pytest.raises(KeyError):
            job()
    else:
        job()
    assert recorder.current is None
    WORLD.Barrier()
    events = whole(directory)
    assert all(named(events, "collective", "X", rank) == ["allreduce.ring"] for rank in range(SIZE))
    assert read(directory).missing == []


def test_passes_of_drivers_that_take_turns_do_not_overlap(directory):
    with pycoll.trace(directory):
        drivers = [Passes(), Passes()]
        for announce in (Passes.gradient, Passes.gradient, Passes.over):
            for driver in drivers:
                announce(driver)
        with pycoll.trace.phase("of the program's own"):
            drivers[0].gradient()
        drivers[0].over()
    WORLD.Barrier()
    assert sorted(named(whole(directory), "phase", "X", RANK)) == ["backward", "forward", "of the program's own"]


def test_a_phase_within_itself(directory):
    with pycoll.trace(directory):
        again = pycoll.trace.phase("again")
        with again, again:
            pass
        Passes().gradient()  # outside of all phases
    WORLD.Barrier()
    found = read(directory).ranks[RANK].phases
    assert sorted(one.what for one in found) == ["again", "again", "forward"]


def test_clocks_are_measured_at_both_ends(directory):
    with pycoll.trace(directory):
        pycoll.barrier()
    WORLD.Barrier()
    for number, rank in read(directory).ranks.items():
        assert [measured.rank for measured in rank.clock.measured] == ([number] * 2 if number else [])
        assert all(measured.error > 0 for measured in rank.clock.measured)


def test_clocks_that_are_wrong_are_put_right(directory, monkeypatch):
    def wrong():
        return time.monotonic_ns() + RANK * (10**15 + time.monotonic_ns() // 1000)

    for module in (recorder, clocks, steps, phases):
        monkeypatch.setattr(module, "now", wrong)
    with pycoll.trace(directory):
        for _ in range(5):
            pycoll.barrier(algorithm="dissemination")
            time.sleep(0.01)
    WORLD.Barrier()
    events = whole(directory)
    sent = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    took = [event["ts"] - sent[event["id"]] for event in events if event["ph"] == "f"]
    errors = [m.error / 1e3 for rank in read(directory).ranks.values() for m in rank.clock.measured]
    assert len(took) == 5 * SIZE * (SIZE - 1).bit_length()
    assert all(-2 * max(errors) <= time <= 1e9 for time in took)


def test_rings_hold_no_more_than_they_are_to(directory):
    with pycoll.trace(directory, events=7):
        for _ in range(5):
            pycoll.allreduce(np.ones(N), algorithm="ring")
    WORLD.Barrier()
    events = whole(directory)
    rank = read(directory).ranks[RANK]
    assert rank.dropped == (SIZE == 1 and max(0, 5 * 3 - 7)) or rank.dropped > 0
    assert len(named(events, "step", "X", RANK)) <= 7


def test_what_cannot_be_is_refused(directory):
    with pytest.raises(ValueError, match="events=0 is not a positive number"), pycoll.trace(directory, events=0):
        pass
    (directory / "file").touch() if RANK == 0 else None
    WORLD.Barrier()
    with pytest.raises(NotADirectoryError), pycoll.trace(directory / "file" / "below"):
        pass
    with pycoll.trace(directory):
        with pytest.raises(RuntimeError, match="a trace is being recorded already"), pycoll.trace(directory):
            pass
        pycoll.barrier()
    assert MPI.COMM_WORLD.allreduce(recorder.current is None, MPI.LAND)
