"""Compiled programs of all ranks, run on a machine without MPI that does not buffer messages."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler import lower
from pycoll.compiler.layout import split
from pycoll.compiler.lower import compile_rounds
from pycoll.compiler.program import RECV, SEND, Layout, Region, Wait
from pycoll.compiler.program_key import ProgramKey
from pycoll.compiler.programs import compiled
from pycoll.schedule.moves import Copy, Recv, Send
from pycoll.schedule.registry import find
from tests.drawn import examples
from tests.pure.schedule.test_proof import ALGORITHMS

from .machine import Machine

EVEN = [algorithm for algorithm in ALGORITHMS if not algorithm.primitive.varies]
IN_PLACE_EVERYWHERE = ("allgather", "allreduce", "alltoall", "reduce_scatter", "scan", "exscan")
IN_PLACE_AT_ROOT = ("bcast", "gather", "reduce", "scatter")


def keep_in_flight(nbytes):
    lower.IN_FLIGHT = nbytes
    compiled.cache_clear()


def expected(primitive, data, rank, root):
    """Return the values with which the receive buffer of a rank must begin, or None if it gets no result."""
    size = len(data)
    if (primitive in ("gather", "reduce") and rank != root) or (primitive == "exscan" and rank == 0):
        return None
    return {
        "bcast": lambda: data[root],
        "scatter": lambda: data[root].reshape(size, -1)[rank],
        "gather": lambda: np.concatenate(data),
        "allgather": lambda: np.concatenate(data),
        "reduce": lambda: sum(data),
        "allreduce": lambda: sum(data),
        "reduce_scatter": lambda: sum(data).reshape(size, -1)[rank],
        "alltoall": lambda: np.concatenate([row.reshape(size, -1)[rank] for row in data]),
        "scan": lambda: sum(data[: rank + 1]),
        "exscan": lambda: sum(data[:rank]),
        "barrier": lambda: np.zeros(0, np.int64),
    }[primitive]()


def buffers(primitive, data, rank, root, count, in_place):
    """Return the send and receive buffers of one rank."""
    name, size = primitive.name, len(data)
    recv = np.full(count * (size if primitive.gives_all else 1), -1)
    if name == "bcast":
        return [np.zeros(0, np.int64), data[rank].copy() if rank == root else recv]
    if not in_place or name == "scatter":
        return [data[rank].copy(), recv]
    if name in ("gather", "allgather"):
        recv[rank * count : (rank + 1) * count] = data[rank]
        return [np.zeros(0, np.int64), recv]
    return [np.zeros(0, np.int64), data[rank].copy()]


def run(
    algorithm,
    size,
    root=0,
    count=7,
    segment=1 << 20,
    segments=1,
    in_place=False,
    eager=False,
    seed=0,
    hosts=None,
):
    """Run the programs of all ranks, check the results, and return the largest scratch size of a rank in bytes."""
    primitive = algorithm.primitive
    numbers = np.random.default_rng(seed)
    data = [numbers.integers(0, 1000, count * (size if primitive.takes_all else 1)) for _ in range(size)]
    inside = [
        (primitive.name == "bcast" and rank == root)
        or (
            in_place
            and (primitive.name in IN_PLACE_EVERYWHERE or (primitive.name in IN_PLACE_AT_ROOT and rank == root))
        )
        for rank in range(size)
    ]
    memory = [buffers(primitive, data, rank, root, count, inside[rank]) for rank in range(size)]
    before = [send.copy() for send, _ in memory]
    programs = [
        compiled(
            ProgramKey(
                *(algorithm, rank, size, root, count, 8, inside[rank], segments, segment),
                hosts=hosts,
            )
        )
        for rank in range(size)
    ]
    order = list(range(size))
    random.Random(seed).shuffle(order)
    Machine(programs, memory, np.add, eager).run(order)
    for rank, (send, recv) in enumerate(memory):
        assert np.array_equal(send, before[rank]), "the send buffer was written"
        wanted = expected(primitive.name, data, rank, root)
        if wanted is not None and not (primitive.name == "scatter" and inside[rank]):
            assert np.array_equal(recv[: wanted.size], wanted)
    return max(program.scratch for program in programs)


@pytest.mark.parametrize("sizes", [(1, 3, 4), pytest.param((2, 5, 8), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", EVEN, ids=str)
def test_small_machine(algorithm, in_place, sizes):
    for size in sizes:
        for root in {0, size // 2, size - 1} if algorithm.primitive.rooted else {0}:
            for count in {0, 1, size - 1, size, 37} if root == 0 else {1, 37}:
                for segment in (24, 1 << 20) if count else (24,):
                    for eager in (False, True):
                        run(algorithm, size, root, count, segment, 3, in_place, eager)


@examples(25)
@given(st.data())
@pytest.mark.parametrize("algorithm", EVEN, ids=str)
def test_drawn_machines(algorithm, data):
    keep_in_flight(data.draw(st.integers(0, 1000), "in flight"))
    size = data.draw(st.sampled_from([*range(1, 10), 12, 16]), "size")
    hosts = tuple(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size), "hosts"))
    run(
        algorithm,
        size,
        root=data.draw(st.integers(0, size - 1), "root"),
        count=data.draw(st.integers(0, 60), "count"),
        segment=8 * data.draw(st.integers(1, 40), "segment"),
        segments=data.draw(st.integers(1, 6), "segments"),
        in_place=data.draw(st.booleans(), "in place"),
        eager=data.draw(st.booleans(), "eager"),
        seed=data.draw(st.integers(0, 99), "seed"),
        hosts=hosts if algorithm.knows_hosts else None,
    )


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", [a for a in EVEN if a.name == "ring"], ids=str)
def test_rings_need_little_scratch(algorithm, in_place):
    """Check that rings need at most two blocks and two segments, unless their docstrings state otherwise."""
    if algorithm.primitive.name == "barrier":
        return
    for size in (2, 3, 4, 7, 8):
        count, segment, segments = 8 * size, 64, 4
        block = 8 * (-(-count // algorithm.parts(size, segments)) if algorithm.primitive.cuts else count)
        scratch = run(algorithm, size, count=count, segment=segment, segments=segments, in_place=in_place)
        if algorithm.primitive.name == "alltoall":
            assert scratch <= (size - 1) * (3 if in_place else 2) * block
        elif algorithm.primitive.name == "exscan" and in_place:
            assert scratch <= 8 * count + 2 * 64
        else:
            assert scratch <= 2 * block + 2 * segment


def test_ring_allreduce_out_of_place_needs_no_scratch():
    assert run(find("allreduce", "ring"), 4, count=64, segment=32) == 0


@pytest.mark.parametrize("nbytes, segments", [(64, 2), (128, 2), (255, 3)])
def test_messages_are_cut_into_windows_of_segments(nbytes, segments):
    keep_in_flight(nbytes)
    program = compiled(ProgramKey(find("allreduce", "ring"), 0, 2, 0, 64, 8, False, 1, 64))
    assert {message.region.size for message in program.messages} == {64}
    begun = most = 0
    for step in program.steps:
        begun += {"Start": 1, "Wait": -1}.get(type(step).__name__, 0)
        most = max(most, begun)
    assert most == 2 * segments  # of the outgoing message, and of the incoming one
    assert isinstance(program.steps[-1], Wait)


def test_split_is_even():
    assert split(10, 4) == [3, 3, 2, 2] and split(2, 4) == [1, 1, 0, 0] and split(0, 2) == [0, 0]


# Valid schedules that no algorithm uses yet.


def swap_with_a_copy(rank, size):
    """Copy the block of this rank to the name of the other block, send the copy, and receive into the original."""
    yield (Copy(rank, 1 - rank),)
    yield Send(1 - rank, [1 - rank]), Recv(1 - rank, [rank])


def back_and_forth(rank, size):
    """Replace a block in the rounds that send it, and then send it in a larger message."""
    other = 1 - rank
    yield Send(other, ["x"]), Recv(other, ["x"])
    yield Send(other, ["x"]), Recv(other, ["x"])
    yield Send(other, ["x", "y"]), Recv(other, ["x", "y"])


@pytest.mark.parametrize("eager", [False, True])
def test_blocks_in_each_others_places(eager):
    region = [Region(RECV, 0, 32), Region(RECV, 32, 32)]
    programs = []
    for rank in range(2):
        blocks = Layout(lambda block: 32, {rank: region[rank]}, {0: region[1], 1: region[0]})
        programs.append(compile_rounds([(Send(1 - rank, [rank]), Recv(1 - rank, [1 - rank]))], blocks, 16))
    memory = [[np.zeros(0, int), np.repeat([10 + rank, 10 + rank], 4)] for rank in range(2)]
    Machine(programs, memory, np.add, eager).run([0, 1])
    for _, recv in memory:
        assert list(recv) == [11] * 4 + [10] * 4


@pytest.mark.parametrize("eager", [False, True])
def test_a_copy_keeps_the_old_value(eager):
    region = [Region(RECV, 0, 32), Region(RECV, 32, 32)]
    programs = [
        compile_rounds(
            [tuple(moves) for moves in swap_with_a_copy(rank, 2)],
            Layout(lambda block: 32, {rank: region[rank]}, {0: region[0], 1: region[1]}),
            16,
        )
        for rank in range(2)
    ]
    memory = [[np.zeros(0, int), np.repeat([10 + rank, 10 + rank], 4)] for rank in range(2)]
    Machine(programs, memory, np.add, eager).run([1, 0])
    for rank, (_, recv) in enumerate(memory):
        expected = [0, 0]
        expected[rank], expected[1 - rank] = 11 - rank, 10 + rank
        assert list(recv) == [expected[0]] * 4 + [expected[1]] * 4


@pytest.mark.parametrize("eager", [False, True])
def test_a_block_received_while_it_is_sent(eager):
    programs = [
        compile_rounds(
            list(back_and_forth(rank, 2)),
            Layout(
                lambda block: 32,
                {"x": Region(SEND, 0, 32), "y": Region(SEND, 64, 32)},
                {"x": Region(RECV, 0, 32), "y": Region(RECV, 64, 32)},
            ),
            16,
        )
        for rank in range(2)
    ]
    memory = [[np.arange(12) + 100 * rank, np.zeros(12, int)] for rank in range(2)]
    Machine(programs, memory, np.add, eager).run([0, 1])
    for rank, (_, recv) in enumerate(memory):
        other = memory[1 - rank][0]
        assert list(recv[:4]) == list(other[:4]) and list(recv[8:]) == list(other[8:])


def test_rounds_that_break_the_rules_are_not_compiled():
    blocks = Layout(lambda block: 8, {0: Region(SEND, 0, 8)}, {})
    with pytest.raises(ValueError, match="both local moves and messages"):
        compile_rounds([(Send(1, [0]), Copy(0, 1))], blocks, 8)
