"""Registered buffers with blocks of different lengths: results in every form of call, agreement between ranks."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from pycoll.selection.rules import registered_from
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]

COUNT = 65 * 1024 + 3  # float32 elements of a block, more bytes than the least for any primitive and form
LENGTH = 2 * SIZE * (COUNT + 8) + 64  # elements of the buffers
VARYING = ["scatterv", "gatherv", "alltoallv", "alltoallw"]
PAIRS = [(name, algorithm) for name in VARYING for algorithm in algorithms_of(name)]
FORMS = ["blocking", "nonblocking", "persistent"]
ROOT = SIZE // 2


@pytest.fixture(scope="module")
def memory(comm):
    """Return registered memory for two buffers."""
    return [pycoll.zeros(LENGTH, np.float32, comm=comm) for _ in range(2)]


def ordinary():
    return [np.zeros(LENGTH, np.float32) for _ in range(2)]


class Call:
    """A call on blocks of different lengths, some of them empty, with buffers in given memory and gaps in them."""

    def __init__(self, comm, primitive, algorithm=None, seed=0, count=COUNT, in_place=False, starts=(0, 0)):
        self.comm, self.primitive, self.shape = comm, primitive, PRIMITIVES[primitive]
        self.rooted, self.starts = self.shape.rooted, starts
        self.given = {"comm": comm, "algorithm": algorithm} | ({"root": ROOT} if self.rooted else {})
        numbers = np.random.default_rng(seed)
        table = numbers.integers(3 * count // 4, 2 * count, (SIZE, SIZE))
        if count > 1:
            table[numbers.integers(SIZE), numbers.integers(SIZE)] = 0
        if primitive == "scatterv":
            table[np.arange(SIZE) != ROOT] = 0
        elif primitive == "gatherv":
            table[:, np.arange(SIZE) != ROOT] = 0
        elif in_place:
            table = np.triu(table) + np.triu(table, 1).T
        self.table, self.seed = table, seed
        self.inside = in_place and (RANK == ROOT or not self.rooted)
        gap = int(numbers.integers(0, 8))
        self.sends, self.recvs = self.spread(table[RANK], gap), self.spread(table[:, RANK], gap)

    @staticmethod
    def spread(counts, gap):
        """Return the displacements of blocks, in reverse order."""
        return (np.cumsum([0, *(counts[::-1] + gap)])[:-1][::-1]).tolist()

    def block(self, source, to):
        """Return a block, whose contents every rank knows."""
        return np.arange(self.table[source, to], dtype="f") + 7 * self.seed + 3 * source + 2 * to

    def spec(self, buffer, counts, displs):
        if self.primitive == "alltoallw":
            return [buffer, counts, [4 * displ for displ in displs], [MPI.FLOAT] * SIZE]
        return [buffer, counts, displs, MPI.FLOAT]

    def place(self, memory):
        """Copy the blocks of this rank to the memory; return the arguments, the receive buffer and what it gets."""
        send, recv = (one[start : start + LENGTH - 64] for one, start in zip(memory, self.starts))
        send[:], recv[:] = -1, -2
        at_root = RANK == ROOT or not self.rooted
        name, counts = self.primitive, (self.table[RANK].tolist(), self.table[:, RANK].tolist())
        sending, receiving = self.spec(send, counts[0], self.sends), self.spec(recv, counts[1], self.recvs)
        if name == "gatherv":
            send = sending = send[self.sends[ROOT] :][: counts[0][ROOT]]
            self.sends[ROOT] = 0
        if name == "scatterv":
            recv = receiving = recv[self.recvs[ROOT] :][: counts[1][ROOT]]
            self.recvs[ROOT] = 0
        for to, (count, start) in enumerate(zip(counts[0], self.sends)):
            send[start : start + count] = self.block(RANK, to)
        wanted = recv.copy()
        for source, (count, start) in enumerate(zip(counts[1], self.recvs)):
            wanted[start : start + count] = self.block(source, RANK)
        if name == "scatterv":
            return (
                (sending if at_root else None, MPI.IN_PLACE if self.inside else receiving),
                recv,
                (recv.copy() if self.inside else wanted),
            )
        if self.inside:
            for peer, (count, start) in enumerate(zip(counts[1], self.recvs)):
                if name != "gatherv" or peer == RANK:
                    recv[start : start + count] = self.block(RANK, peer)
        return (
            (MPI.IN_PLACE if self.inside else sending, receiving if at_root else None),
            recv,
            (wanted if at_root else recv.copy()),
        )

    @staticmethod
    def compare(recv, wanted):
        np.testing.assert_array_equal(recv, wanted)

    def check(self, memory, form="blocking", times=1):
        """Run the call and check the result."""
        name = self.primitive
        for _ in range(times):
            arguments, recv, wanted = self.place(memory)
            if form == "blocking":
                getattr(pycoll, name)(*arguments, **self.given)
            elif form == "nonblocking":
                getattr(pycoll, f"i{name}")(*arguments, **self.given).Wait()
            self.compare(recv, wanted) if form != "persistent" else None
        if form == "persistent":
            with getattr(pycoll, f"{name}_init")(*arguments, **self.given) as persistent:
                for _ in range(times):
                    arguments, recv, wanted = self.place(memory)
                    persistent.Start()
                    persistent.Wait()
                    self.compare(recv, wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_results_without_messages(comm, memory, primitive, algorithm, in_place, form):
    with pycoll.traffic() as sent:
        # the first call is checked, the second one uses a plan
        Call(comm, primitive, algorithm, in_place=in_place).check(memory, form, times=2)
    assert sent.nbytes < registered_from(primitive)


@pytest.mark.parametrize("primitive, algorithm", PAIRS)
def test_ordinary_and_short_buffers_use_messages(comm, memory, primitive, algorithm):
    for count, buffers in ((COUNT, ordinary()), (COUNT, [ordinary()[0], memory[1]]), (500, memory)):
        for form in FORMS:
            Call(comm, primitive, algorithm, count=count).check(buffers, form, times=2)


@examples(10)
@given(st.data())
def test_calls_in_any_order_at_any_address(comm, memory, data):
    for number in range(data.draw(st.integers(1, 8), "calls")):
        primitive, algorithm = data.draw(st.sampled_from(PAIRS), "pair")
        call = Call(
            *(comm, primitive, algorithm, number),
            count=data.draw(st.sampled_from((1, 100, 9000, COUNT)), "count"),
            in_place=data.draw(st.booleans(), "in place"),
            starts=(data.draw(st.integers(0, 63), "send"), data.draw(st.integers(0, 63), "recv")),
        )
        call.check(memory, data.draw(st.sampled_from(FORMS), "form"), times=2)


@pytest.mark.parametrize("primitive", VARYING)
def test_one_rank_changes_its_buffers(comm, memory, primitive):
    """Check that ranks never use the old addresses of others, nor memory that is not registered."""
    others = [pycoll.zeros(LENGTH, np.float32, comm=comm) for _ in range(2)]
    simple = ordinary()
    kinds = [memory, others, simple, [memory[0], simple[1]], [simple[0], memory[1]]]
    calls = [Call(comm, primitive, seed=seed) for seed in range(3)]
    for turn in range(60):
        changing = (turn // 5) % SIZE  # one rank changes its buffers, the others use theirs again
        calls[turn % 3].check(kinds[turn % 5] if RANK == changing else memory)
    for array in others:
        pycoll.free(array, comm=comm)


@pytest.mark.parametrize("primitive", VARYING)
def test_one_rank_moves_its_blocks(comm, memory, primitive):
    """Check that other displacements in the same buffers, on one rank only, are seen by the others."""
    calls = [[Call(comm, primitive, seed=seed, starts=starts) for starts in ((0, 0), (5, 9))] for seed in range(2)]
    for turn in range(8 * SIZE):
        calls[turn % 2][turn // 2 % SIZE == RANK].check(memory)


def test_only_what_other_ranks_access_must_be_registered(comm, memory):
    simple = ordinary()
    for primitive, buffers in (
        ("scatterv", [memory[0], simple[1]]),
        ("gatherv", [simple[0], memory[1]]),
        ("alltoallv", [memory[0], simple[1]]),
        ("alltoallw", [memory[0], simple[1]]),
    ):
        with pycoll.traffic() as sent:
            Call(comm, primitive).check(buffers, times=2)
        assert sent.nbytes < registered_from(primitive)


@pytest.mark.parametrize("primitive", VARYING)
def test_buffers_may_change_as_soon_as_the_call_returns(comm, memory, primitive):
    """Check that no rank returns while another one reads or writes its buffers."""
    calls = [Call(comm, primitive, seed=seed) for seed in range(4)]
    late = np.random.default_rng(0).integers(0, SIZE, 40)
    for turn in range(40):
        if RANK == late[turn]:
            time.sleep(1e-4)
        calls[turn % 4].check(memory)  # writes to both buffers at once in the next turn


@pytest.mark.parametrize("primitive", VARYING)
def test_collectives_in_flight_at_the_same_time(comm, memory, primitive):
    """Check that each has its own table of positions and its own scratch."""
    room = [[pycoll.zeros(LENGTH, np.float32, comm=comm) for _ in range(2)] for _ in range(4)]
    calls = [Call(comm, primitive, seed=seed, in_place=seed % 2 == 1) for seed in range(4)]
    placed = [call.place(buffers) for call, buffers in zip(calls, room)]
    requests = [getattr(pycoll, f"i{primitive}")(*one[0], **call.given) for one, call in zip(placed, calls)]
    Call(comm, primitive, seed=9).check(memory)
    pycoll.waitall(requests[::-1])
    for _, recv, wanted in placed:
        np.testing.assert_array_equal(recv, wanted)
    for buffers in room:
        for array in buffers:
            pycoll.free(array, comm=comm)


def test_some_ranks_in_place(comm, memory):
    """Check that it makes no difference to the other ranks."""
    for turn in range(SIZE):
        memory[0][: SIZE * COUNT] = memory[1][: SIZE * COUNT] = RANK
        send = MPI.IN_PLACE if turn == RANK else [memory[0], [COUNT] * SIZE]
        result = pycoll.alltoallv(send, [memory[1], [COUNT] * SIZE], comm=comm)
        np.testing.assert_array_equal(result[: SIZE * COUNT], np.repeat(np.arange(SIZE), COUNT))


@pytest.mark.parametrize("primitive", ["scatterv", "gatherv", "alltoallv"])
def test_lengths_that_do_not_match(comm, memory, primitive):
    """Check that the call uses messages, which may be shorter than the receiver expects."""
    sent, expected = [COUNT] * SIZE, [COUNT + 1] * SIZE
    sent[RANK] = expected[RANK] = COUNT + 1 if primitive == "alltoallv" or RANK == ROOT else COUNT
    memory[0][:], memory[1][:] = RANK, -1
    if primitive == "alltoallv":
        pycoll.alltoallv([memory[0], sent], [memory[1], expected], comm=comm)
    elif primitive == "gatherv":
        block = memory[0][: sent[RANK]]
        pycoll.gatherv(block, [memory[1], expected] if RANK == ROOT else None, root=ROOT, comm=comm)
    else:
        block = memory[1][: COUNT + 1]
        sent[ROOT] = COUNT + 1
        pycoll.scatterv([memory[0], sent] if RANK == ROOT else None, block, root=ROOT, comm=comm)
    for rank in range(SIZE) if primitive == "alltoallv" or (primitive == "gatherv" and RANK == ROOT) else []:
        start, exact = rank * (COUNT + 1), rank == RANK
        assert (memory[1][start : start + COUNT] == rank).all()
        assert memory[1][start + COUNT] == (rank if exact else -1)
    if primitive == "scatterv":
        assert (memory[1][:COUNT] == ROOT).all()


def test_methods_of_comm(comm, memory):
    ours = pycoll.Comm(comm)
    counts = [COUNT + rank for rank in range(SIZE)]
    memory[0][:] = RANK
    with pycoll.traffic() as sent:
        for _ in range(2):
            memory[1][:] = -1
            ours.Alltoallv(
                [memory[0], ([counts[RANK]] * SIZE, None)], [memory[1], (counts, None), MPI.FLOAT], algorithm="naive"
            )
            np.testing.assert_array_equal(memory[1][: sum(counts)], np.repeat(np.arange(SIZE), counts))
            memory[1][:] = -1
            target = [memory[1], counts] if RANK == ROOT else None
            ours.Igatherv(memory[0][: counts[RANK]], target, root=ROOT, algorithm="naive").Wait()
            if RANK == ROOT:
                np.testing.assert_array_equal(memory[1][: sum(counts)], np.repeat(np.arange(SIZE), counts))
            ours.Barrier()
    assert sent.nbytes < registered_from("alltoallv")


def test_explain(comm, memory):
    for primitive in VARYING:
        assert pycoll.explain(primitive, nbytes=1 << 20, comm=comm, algorithm="naive").registered
        assert not pycoll.explain(primitive, nbytes=64, comm=comm, algorithm="naive").registered
