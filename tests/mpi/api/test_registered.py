"""Registered buffers: results in every form of call, agreement between ranks, limits."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.runtime.attach import attach
from pycoll.runtime.open_core import why_unusable
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from pycoll.selection.rules import REGISTERED_FROM
from pycoll.selection.tuning_file import SHARED_MEMORY, Candidate, FixedChoice, Point, Tuned
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD
from tests.quick import quick

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory"),
    pytest.mark.skipif(bool(why_unusable()), reason=why_unusable()),
]

COUNT = 65 * 1024 + 3  # float32 elements in the block of a rank, more bytes than the least for any primitive and form
SHARED = [name for name, primitive in PRIMITIVES.items() if name != "barrier" and not primitive.varies]
PAIRS = [(name, algorithm) for name in SHARED for algorithm in algorithms_of(name)]
IN_PLACE = ("allgather", "allreduce", "alltoall", "reduce_scatter", "scan", "exscan")
ROOT = SIZE // 2


@pytest.fixture(scope="module")
def memory(comm):
    """Return registered memory for two buffers."""
    return [pycoll.zeros(SIZE * COUNT + 64, np.float32, comm=comm) for _ in range(2)]


class Call:
    """A call on numbers known to every rank, with buffers in given memory."""

    def __init__(self, comm, primitive, algorithm, seed=0, count=COUNT, in_place=False, starts=(0, 0)):
        self.comm, self.primitive, self.shape = comm, primitive, PRIMITIVES[primitive]
        self.given = {"comm": comm, "algorithm": algorithm} | ({"root": ROOT} if self.shape.rooted else {})
        self.count, self.in_place, self.starts = count, in_place, starts
        blocks = SIZE if self.shape.takes_all else 1
        self.inputs = [np.random.default_rng([seed, rank]).random(blocks * count).astype("f") for rank in range(SIZE)]
        self.inside = in_place and (primitive in IN_PLACE or (self.shape.rooted and RANK == ROOT))

    def place(self, memory):
        """Copy the input of this rank to the memory; return the arguments."""
        mine, count = self.inputs[RANK], self.count
        send = memory[0][self.starts[0] :][: mine.size]
        recv = memory[1][self.starts[1] :][: count * (SIZE if self.shape.gives_all or self.inside else 1)]
        recv[:] = -1
        if self.primitive == "bcast":
            recv = recv[:count]
            recv[:] = mine if RANK == ROOT else -1
            return (recv,)
        if self.shape.rooted and self.shape.takes_all and RANK != ROOT:
            return None, recv[:count]
        send[:] = mine
        if self.primitive == "scatter" and self.inside:
            return send, MPI.IN_PLACE
        gets = RANK == ROOT or self.primitive not in ("reduce", "gather")
        if not self.inside:
            return send, recv[: count if not self.shape.gives_all else None] if gets else None
        if self.shape.holds_in_place:
            recv[RANK * count : (RANK + 1) * count] = mine
        else:
            recv = recv[: mine.size]
            recv[:] = mine
        return MPI.IN_PLACE, recv

    def run(self, memory, form="blocking"):
        """Run the call; return the result, a copy."""
        arguments = self.place(memory)
        if form == "blocking":
            result = getattr(pycoll, self.primitive)(*arguments, **self.given)
        elif form == "nonblocking":
            result = getattr(pycoll, f"i{self.primitive}")(*arguments, **self.given).wait()
        else:
            with getattr(pycoll, f"{self.primitive}_init")(*arguments, **self.given) as persistent:
                for _ in range(2):
                    self.place(memory)
                    persistent.Start()
                    result = persistent.wait()
        return None if result is None else result.copy()

    def reference(self):
        """Return the result with messages, on ordinary memory."""
        return self.run([np.zeros(SIZE * COUNT + 64, np.float32) for _ in range(2)])


@pytest.mark.parametrize("form", quick("blocking", "nonblocking", "persistent"))
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_the_same_bits_without_messages(comm, memory, primitive, algorithm, in_place, form):
    """Check that results are the same as with messages, bit for bit, and that no data is sent."""
    call = Call(comm, primitive, algorithm, in_place=in_place)
    expected = call.reference()
    with pycoll.traffic() as sent:
        for _ in range(2):  # the first call is checked, the second one uses a plan
            np.testing.assert_array_equal(call.run(memory, form), expected)
    assert sent.nbytes < REGISTERED_FROM


@examples(10)
@given(st.data())
def test_calls_in_any_order_at_any_address(comm, memory, data):
    waiting = []
    for number in range(data.draw(st.integers(1, 8), "calls")):
        primitive, algorithm = data.draw(st.sampled_from(PAIRS), "pair")
        call = Call(
            *(comm, primitive, algorithm, number),
            count=data.draw(st.sampled_from((1, 100, 9000, COUNT)), "count"),
            in_place=data.draw(st.booleans(), "in place"),
            starts=(data.draw(st.integers(0, 63), "send"), data.draw(st.integers(0, 63), "recv")),
        )
        form = data.draw(st.sampled_from(("blocking", "nonblocking", "persistent")), "form")
        np.testing.assert_array_equal(call.run(memory, form), call.reference())
    assert not waiting


def check_changing_buffers(comm, memory, primitive, algorithm=None):
    """Check that ranks never use the old addresses of others, nor memory that is not registered."""
    others = [pycoll.zeros(SIZE * COUNT + 64, np.float32, comm=comm) for _ in range(2)]
    ordinary = [np.zeros(SIZE * COUNT + 64, np.float32) for _ in range(2)]
    kinds = [memory, others, ordinary, [memory[0], ordinary[1]], [ordinary[0], memory[1]]]
    calls = [Call(comm, primitive, algorithm, seed) for seed in range(3)]
    expected = [call.reference() for call in calls]
    for turn in range(60):
        changing = (turn // 5) % SIZE  # one rank changes its buffers, the others use theirs again
        mine = kinds[turn % 5] if RANK == changing else memory
        np.testing.assert_array_equal(calls[turn % 3].run(mine), expected[turn % 3])
    for array in others:
        pycoll.free(array, comm=comm)


@pytest.mark.parametrize("primitive", SHARED)
def test_one_rank_changes_its_buffers(comm, memory, primitive):
    check_changing_buffers(comm, memory, primitive)


def test_some_ranks_in_place(comm, memory):
    for turn in range(SIZE + 2):
        memory[0][:COUNT], memory[1][:COUNT] = RANK, -1
        if turn == RANK:
            memory[1][:COUNT] = RANK
        send = MPI.IN_PLACE if turn == RANK else memory[0][:COUNT]
        result = pycoll.allreduce(send, memory[1][:COUNT], comm=comm)
        np.testing.assert_array_equal(result, np.full(COUNT, SIZE * (SIZE - 1) / 2))


@pytest.mark.parametrize("primitive", ["allreduce", "allgather", "alltoall", "reduce_scatter", "bcast", "gather"])
def test_buffers_may_change_as_soon_as_the_call_returns(comm, memory, primitive):
    """Check that no rank returns while another one reads or writes its buffers."""
    calls = [Call(comm, primitive, None, seed) for seed in range(4)]
    expected = [call.reference() for call in calls]
    late = np.random.default_rng(0).integers(0, SIZE, 40)
    for turn in range(40):
        if RANK == late[turn]:
            time.sleep(1e-4)
        result = calls[turn % 4].run(memory)  # writes to both buffers at once in the next turn
        np.testing.assert_array_equal(result, expected[turn % 4])


@pytest.mark.parametrize("registers", [True, False])
def test_arithmetic_errors_of_one_rank(comm, memory, registers):
    """Check that the rank raises the error after the call, which it makes only once, whatever memory it uses."""
    send, recv = (array[:COUNT] if registers else np.zeros(COUNT, np.float32) for array in memory)
    for _ in range(3):
        send[:] = 1
        send[0] = np.finfo(np.float32).max
        error = 0
        try:
            with np.errstate(over="raise"):
                pycoll.allreduce(send, recv, comm=comm, algorithm="ring")
        except FloatingPointError:
            error = 1
        assert WORLD.allreduce(error) == 1
        assert np.isinf(recv[0]) and (recv[1:] == SIZE).all()


def test_collectives_in_flight_at_the_same_time(comm, memory):
    """Check that each has a table of positions and scratch of its own."""
    buffers = [pycoll.zeros((6, SIZE * COUNT), np.float32, comm=comm) for _ in range(2)]
    for row in range(6):
        buffers[0][row] = buffers[1][row] = RANK + row
    memory[0][:COUNT] = RANK
    requests = [pycoll.ialltoall(MPI.IN_PLACE, buffers[0][row], comm=comm) for row in range(6)]
    requests += [pycoll.iallreduce(MPI.IN_PLACE, buffers[1][row], comm=comm) for row in range(6)]
    blocking = pycoll.allreduce(memory[0][:COUNT], memory[1][:COUNT], comm=comm)
    expected = pycoll.allreduce(memory[0][:COUNT].copy(), comm=comm)
    np.testing.assert_array_equal(blocking, expected)
    pycoll.waitall(requests[::-1])
    for row in range(6):
        np.testing.assert_array_equal(
            buffers[0][row].reshape(SIZE, -1), np.arange(SIZE)[:, None] + row + np.zeros(COUNT)
        )
        np.testing.assert_array_equal(buffers[1][row], SIZE * (SIZE - 1) / 2 + SIZE * row)
    for array in buffers:
        pycoll.free(array, comm=comm)


def test_operations(comm, memory):
    for op, expected in (("avg", (SIZE - 1) / 2), ("max", SIZE - 1), ("prod", 0), (MPI.MIN, 0)):
        memory[0][:COUNT] = RANK
        np.testing.assert_array_equal(pycoll.allreduce(memory[0][:COUNT], memory[1][:COUNT], op, comm=comm), expected)
    own = MPI.Op.Create(lambda a, b, datatype: np.frombuffer(b, "f").__iadd__(np.frombuffer(a, "f")), True)
    memory[0][:COUNT] = RANK
    result = pycoll.allreduce(memory[0][:COUNT], memory[1][:COUNT], own, comm=comm)
    np.testing.assert_array_equal(result, SIZE * (SIZE - 1) / 2)
    own.Free()


def test_methods_of_comm(comm, memory):
    ours = pycoll.Comm(comm)
    memory[0][:COUNT] = RANK
    with pycoll.traffic() as sent:
        ours.Allreduce([memory[0], COUNT, MPI.FLOAT], [memory[1], COUNT, MPI.FLOAT])
        np.testing.assert_array_equal(memory[1][:COUNT], SIZE * (SIZE - 1) / 2)
        counts = [COUNT - rank for rank in range(SIZE)]
        ours.Allgatherv(memory[0][: counts[RANK]], [memory[1][: sum(counts)], counts])
    np.testing.assert_array_equal(memory[1][: sum(counts)], np.repeat(np.arange(SIZE), counts))
    assert sent.nbytes < REGISTERED_FROM


def test_explain(comm, memory):
    assert pycoll.explain("allreduce", nbytes=1 << 20, comm=comm).registered
    assert "registered buffers: used directly" in str(pycoll.explain("bcast", nbytes=1 << 20, comm=comm))
    assert not pycoll.explain("allreduce", nbytes=64, comm=comm).registered
    assert not pycoll.explain("allreduce", nbytes=1 << 20, comm=comm, algorithm="native").registered
    assert not pycoll.explain("allreduce", nbytes=1 << 20).registered


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_short_calls_if_they_are_measured_to_be_faster(comm, memory, monkeypatch, primitive, algorithm):
    for count in (0, 1, 7, 1000):
        call = Call(comm, primitive, algorithm, count=count)
        expected = call.reference()
        with monkeypatch.context() as patch, pycoll.traffic() as sent:
            patch.setattr(attach(comm), "tuned", FixedChoice(Candidate(algorithm)))
            attach(comm).forget_plans()
            for form in ("blocking", "blocking", "nonblocking", "persistent"):
                np.testing.assert_array_equal(call.run(memory, form), expected)
        attach(comm).forget_plans()
        assert count < 1000 or sent.nbytes < 4 * count, "the positions of the buffers"


LIMIT = 16 * 1024  # bytes, from which registered buffers were measured to be faster


@pytest.fixture
def measured():
    """Return a communicator for which native was the fastest on ordinary memory, and registered buffers from LIMIT."""
    one = WORLD.Dup()
    channel = attach(one)
    channel.facts = replace(channel.facts, host_memory=True)  # even if CuPy is installed
    others = [*algorithms_of("allreduce"), SHARED_MEMORY]
    seconds = {Candidate("native"): 2e-6, **dict.fromkeys(map(Candidate, others), 3e-6)}
    points = [Point(nbytes, seconds, 1e-6 if nbytes >= LIMIT else 9e-6) for nbytes in (1, LIMIT // 2, LIMIT, 1 << 30)]
    channel.tuned = Tuned(Path("made-up.json"), {}, {"allreduce": points})
    yield one
    one.Free()


def test_measurements_on_ordinary_memory_hold_where_there_is_no_other(measured):
    explained = pycoll.explain("allreduce", nbytes=1 << 20, comm=measured)
    assert explained.algorithm == "native"
    assert explained.registered_from is None
    assert "registered" not in str(explained)


def test_measurements_decide_where_registered_buffers_are_used(measured):
    pycoll.empty(1, comm=measured)
    short, long = (pycoll.explain("allreduce", nbytes=nbytes, comm=measured) for nbytes in (LIMIT - 4, LIMIT))
    assert short.algorithm == "native"
    assert not short.registered
    assert "registered buffers: not used (the least size is 16384 bytes, by measurement)" in str(short)
    assert long.algorithm != "native"
    assert long.registered
    assert long.registered_from == LIMIT
    assert long.reason.endswith("registered buffers were measured to be faster from 16384 bytes")
    rules = pycoll.explain("bcast", nbytes=LIMIT, comm=measured)
    assert (rules.registered_from, rules.registered_reason) == (REGISTERED_FROM, "by the rules")


def test_all_ranks_choose_alike_whatever_their_buffers(measured):
    send, recv = (pycoll.empty(LIMIT // 4, np.float32, comm=measured) for _ in range(2))
    ordinary = np.empty_like(send), np.empty_like(recv)
    for length, native in ((LIMIT // 4, False), (LIMIT // 4 - 1, True)):
        for mine, messages in (((send, recv), False), (ordinary, True), (ordinary if RANK else (send, recv), True)):
            for _ in range(2):
                mine[0][:] = RANK
                with pycoll.traffic() as sent:
                    result = pycoll.allreduce(mine[0][:length], mine[1][:length], comm=measured)
                np.testing.assert_array_equal(result, SIZE * (SIZE - 1) / 2)
                assert (sent.nbytes > length) == (messages and not native), "messages of native are not counted"
