"""Programs for registered buffers: results, and the absence of races between ranks."""

import random
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler import registered as compiler
from pycoll.compiler import registered_work
from pycoll.compiler.program import INPUT, OUTPUT, RECV, SCRATCH, SEND, peer_buffer
from pycoll.compiler.program_key import ProgramKey, side_by_side
from pycoll.compiler.registered import has_registered_programs, registered_program
from pycoll.schedule.registry import PRIMITIVES, find
from tests.drawn import examples

from .machine import Machine
from .test_lower import EVEN, IN_PLACE_EVERYWHERE, buffers, expected

SHARED = [algorithm for algorithm in EVEN if algorithm.primitive.name != "barrier"]
REDUCE_SCATTER = [algorithm for algorithm in SHARED if algorithm.primitive.name == "reduce_scatter"]


class Races:
    """The bytes that each rank reads and writes, as bit sets."""

    def __init__(self, memory):
        self.reads = [[np.zeros(len(buffer), np.uint64) for buffer in mine] for mine in memory]
        self.writes = [[np.zeros(len(buffer), np.uint64) for buffer in mine] for mine in memory]

    def note(self, rank, owner, buffer, start, size, writes):
        for table in [self.reads, self.writes][: 1 + writes]:
            table[owner][buffer][start : start + size] |= np.uint64(1 << rank)

    def check(self):
        for reads, writes in zip(chain.from_iterable(self.reads), chain.from_iterable(self.writes)):
            written = writes != 0
            assert (reads[written] == writes[written]).all(), "a rank writes bytes that another rank accesses"
            assert (writes & (writes - np.uint64(1)) == 0)[written].all(), "two ranks write the same bytes"


def run(algorithm, size, root=0, count=7, segments=3, in_place=False, seed=0, ufunc=np.add, mean=False, counts=()):
    """Run the programs of all ranks, check the results, and return the buffers that must be registered.

    `counts` are those of a reduce-scatter with blocks of different sizes.
    """
    primitive = algorithm.primitive
    numbers = np.random.default_rng(seed)
    length = sum(counts) if counts else count * (size if primitive.takes_all else 1)
    data = [numbers.integers(0, 1000, length) for _ in range(size)]
    inside = [
        (
            in_place
            if primitive.name in IN_PLACE_EVERYWHERE
            else (in_place or primitive.name == "bcast") and rank == root
        )
        for rank in range(size)
    ]
    memory = [buffers(primitive, data, rank, root, count, inside[rank]) for rank in range(size)]
    before = [send.copy() for send, _ in memory]
    root = root if primitive.rooted else 0
    if counts:
        memory = [[send, recv if inside[0] else np.full(n, -1)] for (send, recv), n in zip(memory, counts)]
    sends = side_by_side([8 * one for one in counts])
    blocks = [{"sends": sends, "recvs": ((0, 8 * one),)} for one in counts] or [{}] * size
    found = [
        registered_program(
            ProgramKey(*(algorithm, rank, size, root, count, 8, inside[rank], segments, 1 << 20), **blocks[rank]), mean
        )
        for rank in range(size)
    ]
    assert len({one.needed for one in found}) == 1
    machine = Machine([one.program for one in found], memory, ufunc, True)
    races = Races(machine.memory)
    places = {}  # of the buffers of ranks: where each begins
    for rank in range(size):
        at_root = inside[rank] and primitive.name != "scatter"
        own_block = rank * count * 8 if at_root and primitive.holds_in_place else 0
        places[peer_buffer(rank, INPUT)] = (rank, RECV if at_root else SEND, own_block)
        places[peer_buffer(rank, OUTPUT)] = (rank, RECV, 0)
    for mine in machine.memory:
        mine += [machine.memory[rank][buffer][start:] for rank, buffer, start in places.values()]
    for rank, one in enumerate(found):
        for step in one.program.steps:
            for region in step:
                owner, buffer, start = places.get(region.buffer, (rank, region.buffer, 0))
                assert owner == rank or divmod(region.buffer - 3, 2) in one.needed
                races.note(rank, owner, buffer, start + region.start, region.size, region is step[-1])
    races.check()
    order = list(range(size))
    random.Random(seed).shuffle(order)
    machine.run(order)
    machine.programs = [one.after for one in found]
    for one in machine.programs:
        assert all(region.buffer in (SCRATCH, RECV) for step in one.steps for region in step)
    machine.run(order)
    for rank, (send, recv) in enumerate(memory):
        assert np.array_equal(send, before[rank]), "the send buffer was written"
        wanted = (
            sum(data)[sum(counts[:rank]) :][: counts[rank]] if counts else expected(primitive.name, data, rank, root)
        )
        if wanted is not None and not (primitive.name == "scatter" and inside[rank]):
            assert np.array_equal(recv[: wanted.size], wanted // size if mean else wanted)
    return found[0].needed


@pytest.fixture(params=[0, registered_work.SPREAD], ids=["spread", "whole"])
def spread(request, monkeypatch):
    """Let ranks combine parts of all blocks in place, however short these are; or not."""
    monkeypatch.setattr(registered_work, "SPREAD", request.param)
    registered_program.cache_clear()
    yield
    registered_program.cache_clear()


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", SHARED, ids=str)
def test_small_machine(algorithm, in_place):
    for size in (2, 3, 4, 5, 8):
        for root in {0, size // 2, size - 1} if algorithm.primitive.rooted else {0}:
            for count in {0, 1, size - 1, size, 37} if root == 0 else {1, 37}:
                run(algorithm, size, root, count, in_place=in_place)


@examples(25)
@given(st.data())
@pytest.mark.parametrize("algorithm", SHARED, ids=str)
def test_drawn_machines(algorithm, data):
    size = data.draw(st.integers(2, 9), "size")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "PIECE", 8 * data.draw(st.integers(1, 40), "piece"))
        patch.setattr(registered_work, "SPREAD", data.draw(st.sampled_from((0, 1 << 13)), "spread"))
        registered_program.cache_clear()
        run(
            algorithm,
            size,
            root=data.draw(st.integers(0, size - 1), "root"),
            count=data.draw(st.integers(0, 60), "count"),
            segments=data.draw(st.integers(1, 6), "segments"),
            in_place=data.draw(st.booleans(), "in place"),
            seed=data.draw(st.integers(0, 99), "seed"),
        )
    registered_program.cache_clear()


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive", ["allreduce", "reduce", "reduce_scatter"])
def test_means(primitive, in_place):
    for size in (2, 3, 5):
        run(find(primitive, "ring"), size, 1 if primitive == "reduce" else 0, 37, in_place=in_place, mean=True)


def test_only_what_other_ranks_access_must_be_registered():
    inputs, outputs = {(0, INPUT), (1, INPUT), (2, INPUT)}, {(0, OUTPUT), (1, OUTPUT), (2, OUTPUT)}
    for name, algorithm, needed in [
        ("bcast", "tree", {(1, INPUT)}),  # 7 elements are too few for the root to store a share of them
        ("scatter", "naive", {(1, INPUT)}),
        ("gather", "naive", {(1, OUTPUT)}),
        ("allgather", "ring", inputs),
        ("alltoall", "naive", inputs),
        ("reduce_scatter", "ring", inputs),
        ("reduce", "ring", inputs | {(1, OUTPUT)}),
        ("allreduce", "ring", inputs | outputs),
    ]:
        assert set(run(find(name, algorithm), 3, 1)) == needed, name


def test_there_are_none_where_ranks_do_not_know_the_counts():
    without = {name for name, primitive in PRIMITIVES.items() if not has_registered_programs(primitive)}
    assert without == {"scatterv", "gatherv", "alltoallv", "alltoallw", "barrier"}


@examples(25)
@given(st.data())
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", REDUCE_SCATTER, ids=str)
def test_reduce_scatter_with_counts(algorithm, in_place, data):
    counts = data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=8), "counts")
    run(algorithm, len(counts), count=0, in_place=in_place, counts=counts)


@pytest.mark.parametrize("algorithm", REDUCE_SCATTER, ids=str)
def test_reduce_scatter_in_place(algorithm, spread):
    for size in (2, 3, 4, 5, 8):
        for count in (0, 1, size, 37, 300):
            run(algorithm, size, count=count, in_place=True, mean=count % 2)


@pytest.mark.parametrize("itemsize", [6, 9, 12, 16])
def test_no_element_is_cut(itemsize, spread):
    for size in (2, 3, 5):
        for rank in range(size):
            key = ProgramKey(find("reduce_scatter", "ring"), rank, size, 0, 2001, itemsize, True, 1, 1 << 20)
            for program in (registered_program(key).program, registered_program(key).after):
                for region in chain.from_iterable(program.steps):
                    assert region.start % itemsize == region.size % itemsize == 0 or region.buffer == SCRATCH
