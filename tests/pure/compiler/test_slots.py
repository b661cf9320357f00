"""Programs for slots compute the results of the algorithm, in any order in which the ranks may run."""

from __future__ import annotations

import math
import random
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pycoll.compiler.layout import layout, split
from pycoll.compiler.program import (
    DONE,
    READY,
    RECV,
    SCRATCH,
    SEND,
    SLOTS,
    Apply,
    Await,
    CopyBytes,
    Divide,
    Post,
    peer_of,
)
from pycoll.compiler.program_key import ProgramKey, side_by_side
from pycoll.compiler.slots import slot_program
from pycoll.schedule.neighbors import Stencil, around, connected, stencil_neighbors
from pycoll.schedule.registry import NEIGHBORHOODS, PRIMITIVES, find

ITEM = np.dtype("i8")
PRIMITIVE_NAMES = [name for name, one in PRIMITIVES.items() if not one.varies]
LEFT = 2


class Host:
    """The slots of all ranks, and where each rank is; a step of a rank runs only if it does not have to wait."""

    def __init__(self, programs, buffers, order):
        self.programs, self.order = programs, order
        size = len(programs)
        self.memory = [
            [b.reshape(-1).view(np.uint8) for b in pair] + [np.zeros(len(programs) << 16, np.uint8)] for pair in buffers
        ]
        (self.kind,) = {program.slots for program in programs}
        nbytes, count, _ = SLOTS[self.kind]
        self.areas = [np.full((count, 2, nbytes), 0xA5, np.uint8) for _ in range(size)]
        self.counters = np.zeros((size, 3), int)

    def steps(self, rank):
        program = self.programs[rank]
        for number, turn in enumerate(program.turns, 1):
            window = SLOTS[program.slots][1]
            for other in range(len(self.programs)):
                while self.counters[other, LEFT] < number - window:
                    yield False
            for step in turn:
                if isinstance(step, Await):
                    while self.counters[step.rank, step.counter] < number:
                        yield False
                else:
                    self.do(rank, step, number)
                yield True
            self.counters[rank, LEFT] = number
            yield True

    def do(self, rank, step, number):
        match step:
            case Post(counter):
                self.counters[rank, counter] = number
            case CopyBytes(source, to):
                self.view(rank, to, number)[:] = self.view(rank, source, number).copy()
            case Apply(left, right, out):
                left, right, out = (self.view(rank, region, number).view(ITEM) for region in step)
                out[:] = left * 3 + right  # neither commutative nor associative
            case Divide(region):
                values = self.view(rank, region, number).view(ITEM)
                values[:] = values - 1

    def view(self, rank, region, number):
        start, end = region.start, region.start + region.size
        if region.buffer <= SCRATCH:
            memory = self.memory[rank][region.buffer]
            if region.buffer != SCRATCH:
                shift = (number - 1) * self.programs[rank].piece
                start, end = start + shift, end + shift
        else:
            owner, which = peer_of(region.buffer)
            assert which == 0 or SLOTS[self.kind][2]
            memory = self.areas[owner][number % SLOTS[self.kind][1]][which]
        assert end <= memory.size
        return memory[start:end]

    def run(self):
        running = {rank: self.steps(rank) for rank in range(len(self.programs))}
        stuck = 0
        while running:
            rank = self.order.choice(list(running))
            for _ in range(self.order.randrange(1, 40)):
                moved = next(running[rank], None)
                if moved is None:
                    del running[rank]
                if not moved:
                    break
            stuck = 0 if moved is not False else stuck + 1
            assert stuck < 200 * len(self.programs), "deadlock"


def combined(values):
    return list(accumulate(values, lambda left, right: left * 3 + right))[-1]


def keys(primitive, size, count, root, in_place, counts):
    algorithm = find(primitive, "naive")
    reduces = algorithm.primitive.reduces
    length = count if reduces else count * ITEM.itemsize
    places = {}
    if counts:
        extents = side_by_side([n * ITEM.itemsize for n in counts])
        length = 0
    for rank in range(size):
        if counts and primitive == "allgatherv":
            places = {"sends": extents if in_place else ((0, extents[rank][1]),), "recvs": extents}
        elif counts:
            places = {"sends": extents, "recvs": ((0, extents[rank][1]),)}
        alone = algorithm.primitive.rooted and rank != root
        here = (in_place and not alone) or (primitive == "bcast" and rank == root)
        yield ProgramKey(
            algorithm, rank, size, root, length, ITEM.itemsize if reduces else 1, here, 1, 1 << 20, **places
        )


def run(primitive, size, count, root=0, in_place=False, counts=None, seed=0, mean=False):
    """The receive buffers of all ranks, and the contributions of all ranks: blocks by name."""
    yield from computed(list(keys(primitive, size, count, root, in_place, counts)), seed, mean)


def computed(ranks, seed=0, mean=False):
    """The same for the calls of all ranks, by their keys."""
    numbers, order = np.random.default_rng(seed), random.Random(seed)
    contributions, buffers, layouts = [], [], [layout(key) for key in ranks]
    wanted = [where.wanted | {(block, "again"): region for block, region in where.again} for where in layouts]
    for where, regions in zip(layouts, wanted):
        ends = [[r.start + r.size for r in (*where.held.values(), *regions.values()) if r.buffer == b] for b in (0, 1)]
        pair = [numbers.integers(0, 100, max(end, default=0) // ITEM.itemsize, ITEM) for end in ends]
        buffers.append(pair)
        contributions.append(
            {
                block: pair[region.buffer].view(np.uint8)[region.start : region.start + region.size].view(ITEM).copy()
                for block, region in where.held.items()
            }
        )
    given = [pair[SEND].copy() for pair in buffers]
    Host([slot_program(key, mean) for key in ranks], buffers, order).run()
    for before, (send, _) in zip(given, buffers):
        np.testing.assert_array_equal(before, send)
    for regions, (_, recv) in zip(wanted, buffers):
        yield {
            block: recv.view(np.uint8)[region.start : region.start + region.size].view(ITEM)
            for block, region in regions.items()
        }
    yield contributions


def expected(primitive, size, root, contributions, rank, block):
    if primitive.reduces:
        order = list(primitive.contributors(rank, size))
        if primitive.name == "reduce":  # the root combines the lower ranks first, from itself downwards
            value = contributions[root][block]
            for other in range(root - 1, -1, -1):
                value = contributions[other][block] * 3 + value
            return combined([value, *(contributions[other][block] for other in range(root + 1, size))])
        if primitive.name in ("allreduce", "reduce_scatter", "scan", "exscan"):
            return combined([contributions[other][block] for other in order])
    return next(held[block] for held in contributions if block in held)


def check(name, size, count, **given):
    primitive = PRIMITIVES[name]
    *results, contributions = run(name, size, count, **given)
    for rank, result in enumerate(results):
        for block, value in result.items():
            wanted = expected(primitive, size, given.get("root", 0), contributions, rank, block)
            np.testing.assert_array_equal(value, wanted - 1 if given.get("mean") else wanted)


COUNTS = [1, 7, 512, 513, 3000, 8192, 8193, 20000]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("name", [name for name in PRIMITIVE_NAMES if name != "barrier"])
def test_results(name, size, in_place):
    for count in COUNTS:
        check(name, size, count, root=size - 1 if PRIMITIVES[name].rooted else 0, in_place=in_place)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_calls(data):
    name = data.draw(st.sampled_from([name for name in PRIMITIVE_NAMES if name != "barrier"]))
    size = data.draw(st.integers(2, 9))
    check(
        name,
        size,
        data.draw(st.integers(0, 30000)),
        root=data.draw(st.integers(0, size - 1)) if PRIMITIVES[name].rooted else 0,
        in_place=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 1 << 20)),
        mean=PRIMITIVES[name].reduces and data.draw(st.booleans()),
    )


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_blocks_of_different_lengths(data):
    counts = data.draw(st.lists(st.integers(0, 9000), min_size=2, max_size=5))
    name = data.draw(st.sampled_from(["allgatherv", "reduce_scatter"]))
    check(name, len(counts), 0, counts=counts, in_place=data.draw(st.booleans()), seed=data.draw(st.integers(0, 99)))


def keys_of_neighbors(primitive, stencil, count):
    nbytes = count * ITEM.itemsize
    for rank in range(math.prod(stencil.dims)):
        edges = stencil_neighbors(rank, stencil)
        blocks = len(edges.outgoing)
        sends = side_by_side([nbytes] * blocks) if primitive == "neighbor_alltoall" else ((0, nbytes),) * blocks
        places = {"sends": sends, "recvs": side_by_side([nbytes] * len(edges.incoming))}
        size = math.prod(stencil.dims)
        yield ProgramKey(find(primitive, "direct"), rank, size, 0, 0, 1, False, 1, 1 << 20, neighbors=edges, **places)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_neighbors(data):
    """Each block arrives along its edge, whatever the order in which the ranks run."""
    dims = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    periods = tuple(data.draw(st.booleans()) for _ in dims)
    offsets = data.draw(st.lists(st.tuples(*[st.integers(-2, 2)] * len(dims)), min_size=1, max_size=6))
    stencil = data.draw(st.sampled_from([around(dims, periods), Stencil(dims, periods, tuple(offsets))]))
    assume(connected(stencil))
    primitive = data.draw(st.sampled_from(["neighbor_alltoall", "neighbor_allgather"]))
    ranks = [*keys_of_neighbors(primitive, stencil, data.draw(st.integers(0, 9000)))]
    *results, contributions = computed(ranks, data.draw(st.integers(0, 99)))
    block_of = NEIGHBORHOODS[primitive].block_of
    for edges, result in zip((key.neighbors for key in ranks), results):
        for edge in edges.incoming:
            sent = contributions[edge.source][block_of(edge)]
            np.testing.assert_array_equal(result[block_of(edge)], sent)
            np.testing.assert_array_equal(result.get((block_of(edge), "again"), sent), sent)


def test_a_block_for_all_neighbors_is_in_the_slot_once():
    for primitive, copies in [("neighbor_allgather", 1), ("neighbor_alltoall", 4)]:
        key = next(keys_of_neighbors(primitive, around((3, 3), (True, True)), 8))
        (turn,) = slot_program(key).turns
        to_slot = [step for step in turn if isinstance(step, CopyBytes) and step.source.buffer == SEND]
        assert len(to_slot) == copies


def test_which_neighborhoods_are_connected():
    assert connected(around((2, 3), (False, False))) and connected(around((1,), (False,)))
    assert not connected(Stencil((4,), (True,), ((2,),))) and connected(Stencil((5,), (True,), ((2,),)))


def test_a_barrier_waits_for_all():
    programs = [slot_program(key) for key in keys("barrier", 4, 0, 0, False, None)]
    host = Host(programs, [(np.zeros(0), np.zeros(0))] * 4, random.Random(0))
    running = [host.steps(rank) for rank in range(3)]
    for _ in range(100):
        ended = [next(one, None) is None for one in running]
    assert not any(ended), "rank 3 has not called"
    host.run()


def test_empty_blocks_take_no_turn():
    assert slot_program(next(keys("allreduce", 3, 0, 0, False, None))).turns == ()


def test_ranks_must_know_all_lengths():
    for name, known in [("allgatherv", True), ("gatherv", False), ("alltoallv", False), ("allreduce", True)]:
        assert PRIMITIVES[name].lengths_known == known
    assert split(7, 2) == [4, 3] and (READY, DONE, RECV) == (0, 1, 1)


@pytest.mark.parametrize("length", [8, 1 << 12, 1 << 20])
def test_the_root_of_a_broadcast_copies_its_block_once(length):
    key = ProgramKey(find("bcast", "naive"), 0, 2, 0, length, 1, True, 1, 1 << 30)
    for turn in slot_program(key).turns:
        assert [type(step) for step in turn] == [CopyBytes, Post]
