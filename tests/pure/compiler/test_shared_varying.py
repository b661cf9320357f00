"""Programs for registered buffers with blocks of different lengths: results, and the absence of races between ranks."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.blocks import ProgramKey
from pycoll.compiler.program import OUTPUT, RECV, SCRATCH, SEND, peer_buffer
from pycoll.compiler.shared_varying import accessed, blocks_by_rank, has_varying_programs, shared_varying
from pycoll.schedule.registry import PRIMITIVES
from tests.drawn import examples

from .machine import Machine
from .test_lower_varying import ITEM, VARYING, fill, parts
from .test_shared import Races

SHARED = [algorithm for algorithm in VARYING if has_varying_programs(algorithm.primitive)]
NOTHING = np.zeros(0, int)


def buffers(algorithm, rank, root, counts, blocks, gaps, in_place):
    """Return the key of a rank, its two buffers and the expected receive buffer."""
    name, size = algorithm.primitive.name, len(counts)
    sends, send, recvs, expected = parts(name, rank, root, counts, blocks, gaps)
    recv, inside = np.full(expected.size, -1), in_place and (rank == root or not algorithm.primitive.rooted)
    if inside and name == "scatterv":
        recvs, recv, expected = (), NOTHING, NOTHING
    elif inside:
        here = [blocks[0][i] if i == rank else -1 for i in range(size)] if name == "gatherv" else blocks[rank]
        recv = fill(recvs, recv.size, here)
        sends, send = recvs, NOTHING
    return ProgramKey(algorithm, rank, size, root, 0, 1, inside, 1, 1 << 20, sends, recvs), send, recv, expected


def run(algorithm, counts, root=0, gaps=0, in_place=False, seed=0):
    """Run the programs of all ranks on random data, and check the results.

    `counts[i][j]` elements go from rank i to rank j.  Primitives with one list of counts use only row 0.
    """
    size, primitive, numbers = len(counts), algorithm.primitive, np.random.default_rng(seed)
    if in_place and not primitive.rooted:
        counts = (np.triu(counts) + np.triu(counts, 1).T).tolist()
    blocks = [[numbers.integers(0, 1000, n) for n in row] for row in counts]
    ranks = [buffers(algorithm, rank, root, counts, blocks, gaps, in_place) for rank in range(size)]
    memory = [[send, recv] for _, send, recv, _ in ranks]
    before = [send.copy() for send, _ in memory]
    found = [shared_varying(key) for key, *_ in ranks]
    machine = Machine([one.program for one in found], memory, np.add, True)
    races, which = Races(machine.memory), accessed(primitive)
    inside = [key.in_place and primitive.name != "scatterv" for key, *_ in ranks]
    buffer_of = [RECV if which == OUTPUT or inside[rank] else SEND for rank in range(size)]
    starts = [[start for start, _ in blocks_by_rank(key)[which]] for key, *_ in ranks]  # of the blocks, by rank
    for rank, mine in enumerate([list(mine) for mine in machine.memory]):
        for peer in range(size):
            theirs = machine.memory[peer][buffer_of[peer]][starts[peer][rank] :]
            machine.memory[rank] += [theirs, theirs]  # its input and its output
        for step in found[rank].program.steps:
            for region in step:
                peer = (region.buffer - peer_buffer(0, 0)) // 2
                if region.buffer < len(mine):
                    races.note(rank, rank, *region, region is step[-1])
                else:
                    place = rank, peer, buffer_of[peer], starts[peer][rank] + region.start
                    assert peer != rank
                    assert region.buffer == peer_buffer(peer, which)
                    races.note(*place, region.size, region is step[-1])
    races.check()
    order = list(range(size))
    random.Random(seed).shuffle(order)
    machine.run(order)
    machine.programs = [one.after for one in found]
    assert all(region.buffer in (SCRATCH, RECV) for one in found for step in one.after.steps for region in step)
    machine.run(order)
    for (send, recv), old, (*_, expected) in zip(memory, before, ranks):
        assert np.array_equal(send, old), "the send buffer was written"
        assert np.array_equal(recv, expected)


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", SHARED, ids=str)
def test_counts_of_all_kinds(algorithm, in_place):
    for size in (2, 3, 4, 5, 8):
        for root in {0, size // 2, size - 1} if algorithm.primitive.rooted else {0}:
            for seed, gaps in ((0, 0), (1, 3), (2, -2)):
                counts = np.random.default_rng(seed).choice([0, 1, 5, 12], (size, size)).tolist()
                run(algorithm, counts, root, gaps, in_place, seed)


@examples(25)
@given(st.data())
@pytest.mark.parametrize("algorithm", SHARED, ids=str)
def test_drawn_counts(algorithm, data):
    size = data.draw(st.integers(2, 9), "size")
    row = st.lists(st.integers(0, 20), min_size=size, max_size=size)
    run(
        algorithm,
        data.draw(st.lists(row, min_size=size, max_size=size), "counts"),
        root=data.draw(st.integers(0, size - 1), "root"),
        gaps=data.draw(st.integers(-3, 3), "gaps"),
        in_place=data.draw(st.booleans(), "in place"),
        seed=data.draw(st.integers(0, 99), "seed"),
    )


def test_empty_blocks_need_no_steps():
    for algorithm in SHARED:
        sides = [((0, ITEM), (ITEM, 0), (ITEM, 0))] * 2
        program = shared_varying(ProgramKey(*(algorithm, 0, 3, 0, 0, 1, False, 1, 1 << 20), *sides)).program
        assert len(program.steps) == 1  # the own block


def test_primitives():
    found = {name for name, primitive in PRIMITIVES.items() if has_varying_programs(primitive)}
    assert found == {"scatterv", "gatherv", "alltoallv", "alltoallw"}
