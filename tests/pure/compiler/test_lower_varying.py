"""Blocks of different lengths, with gaps and zero counts, on the machine without MPI."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.layout import COUNT_BYTES
from pycoll.compiler.program_key import ProgramKey, side_by_side
from pycoll.compiler.programs import compiled
from pycoll.schedule.registry import algorithms_of, find
from tests.drawn import examples

from .machine import Machine

VARYING = [
    a for name in ("scatterv", "gatherv", "allgatherv", "alltoallv", "alltoallw") for a in algorithms_of(name).values()
]
ITEM = 8


def spread(counts, gaps):
    """Return the extents of blocks in bytes and the length of their buffer; negative gaps reverse the rank order."""
    starts, end = {}, 0
    order = range(len(counts)) if gaps >= 0 else reversed(range(len(counts)))
    for place in order:
        starts[place] = end
        end += ITEM * (counts[place] + abs(gaps))
    return tuple((starts[place], ITEM * n) for place, n in enumerate(counts)), end // ITEM


def fill(extents, length, blocks):
    """Return a buffer of -1 with the blocks at their places."""
    buffer = np.full(length, -1)
    for (start, size), block in zip(extents, blocks):
        buffer[start // ITEM : (start + size) // ITEM] = block
    return buffer


def parts(name, rank, root, counts, blocks, gaps):
    """Return the send extents, send buffer, receive extents and expected receive buffer of a rank."""
    size, nothing = len(counts), np.zeros(0, int)
    if name == "scatterv":
        sends, length = spread(counts[0], gaps) if rank == root else ((), 0)
        send = fill(sends, length, blocks[0]) if rank == root else nothing
        return sends, send, side_by_side([ITEM * counts[0][rank]]), blocks[0][rank]
    if name in ("gatherv", "allgatherv"):
        recvs, length = spread(counts[0], gaps) if rank == root or name == "allgatherv" else ((), 0)
        recv = fill(recvs, length, blocks[0]) if recvs else nothing
        return side_by_side([ITEM * counts[0][rank]]), blocks[0][rank], recvs, recv
    sends, length = spread(counts[rank], gaps)
    column = [counts[source][rank] for source in range(size)]
    recvs, extent = spread(column, -gaps)
    came = fill(recvs, extent, [blocks[source][rank] for source in range(size)])
    return sends, fill(sends, length, blocks[rank]), recvs, came


def learn(algorithm, size, root, rows, segment, eager, order):
    """Run the programs that exchange counts, and return the table of byte counts of each rank."""
    calls = [ProgramKey(algorithm, rank, size, root, 0, 1, False, 1, segment, (), ()) for rank in range(size)]
    if not calls[0].counts_missing:
        return [None] * size
    sources = algorithm.count_sources(size, root)
    tables = [np.full((len(sources), size), -1) for _ in range(size)]
    for i, source in enumerate(sources):
        tables[source][i] = ITEM * np.array(rows[source if len(sources) > 1 else 0])
    nothing = np.zeros(0, int)
    Machine([compiled(call) for call in calls], [[nothing, table] for table in tables], np.add, eager).run(order)
    expected = ITEM * np.array(rows if len(sources) > 1 else rows[:1])
    for table in tables:
        assert np.array_equal(table, expected)
    return [tuple(map(int, table.reshape(-1))) for table in tables]


def run(algorithm, counts, root=0, segment=1 << 20, gaps=0, eager=False, seed=0):
    """Run the programs of all ranks on random data, and check the results.

    `counts[i][j]` elements go from rank i to rank j.  Primitives with one list of counts use only row 0.
    """
    size, name, numbers = len(counts), algorithm.primitive.name, np.random.default_rng(seed)
    blocks = [[numbers.integers(0, 1000, n) for n in row] for row in counts]
    order = list(range(size))
    random.Random(seed).shuffle(order)
    tables = learn(algorithm, size, root, counts, segment, eager, order)
    programs, memory, wanted = [], [], []
    for rank in range(size):
        sends, send, recvs, expected = parts(name, rank, root, counts, blocks, gaps)
        call = ProgramKey(algorithm, rank, size, root, 0, 1, False, 1, segment, sends, recvs, tables[rank])
        programs.append(compiled(call))
        memory.append([send, np.full(expected.size, -1)])
        wanted.append(expected)
    Machine(programs, memory, np.add, eager).run(order)
    for (_, recv), expected in zip(memory, wanted):
        assert np.array_equal(recv, expected)


@pytest.mark.parametrize("algorithm", VARYING, ids=str)
def test_counts_of_all_kinds(algorithm):
    for size in (1, 2, 3, 4, 5, 8):
        for root in {0, size // 2, size - 1} if algorithm.primitive.rooted else {0}:
            for seed, gaps, segment in ((0, 0, 1 << 20), (1, 3, 40), (2, -2, 24)):
                counts = np.random.default_rng(seed).choice([0, 1, 5, 12], (size, size)).tolist()
                for eager in (False, True):
                    run(algorithm, counts, root, segment, gaps, eager, seed)


@examples(40)
@given(st.data())
@pytest.mark.parametrize("algorithm", VARYING, ids=str)
def test_drawn_counts(algorithm, data):
    size = data.draw(st.integers(1, 7), "size")
    row = st.lists(st.integers(0, 20), min_size=size, max_size=size)
    run(
        algorithm,
        data.draw(st.lists(row, min_size=size, max_size=size), "counts"),
        root=data.draw(st.integers(0, size - 1), "root"),
        segment=data.draw(st.integers(1, 200), "segment"),
        gaps=data.draw(st.integers(-3, 3), "gaps"),
        eager=data.draw(st.booleans(), "eager"),
        seed=data.draw(st.integers(0, 99), "seed"),
    )


def test_counts_are_eight_bytes():
    program = compiled(ProgramKey(find("scatterv", "tree"), 0, 4, 0, 0, 1, False, 1, 1 << 20, (), ()))
    assert {message.region.size for message in program.messages} == {4 * COUNT_BYTES}
