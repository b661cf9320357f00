"""Programs for GPU buffers, run on a machine whose simulated GPU does no work until it is waited for."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.device import PIECE, ByteSet, staged, unstaged
from pycoll.compiler.program import RECV, SCRATCH, SEND, Apply, CopyBytes, Divide, Finish, Program, Ready, Region, Start
from pycoll.compiler.program_key import ProgramKey
from pycoll.compiler.programs import compiled
from pycoll.schedule.registry import find
from tests.drawn import examples

from .machine import Machine
from .test_lower import EVEN, IN_PLACE_AT_ROOT, IN_PLACE_EVERYWHERE, buffers, expected

WAYS = {  # how to adapt a program, and which buffers are then in GPU memory
    "unstaged": (lambda program, send, recv: unstaged(program), {SEND, RECV, SCRATCH}),
    "staged": (staged, {SEND, RECV}),
    "send staged": (lambda program, send, recv: staged(program, send, None), {SEND}),
    "recv staged": (lambda program, send, recv: staged(program, None, recv), {RECV}),
}


def run(algorithm, size, way, root=0, count=7, segment=1 << 20, segments=3, in_place=False, eager=False, mean=False):
    """Run the programs of all ranks, check the results, and return the programs."""
    primitive = algorithm.primitive
    numbers = np.random.default_rng(0)
    data = [numbers.integers(0, 1000, count * (size if primitive.takes_all else 1)) for _ in range(size)]
    at_root = primitive.name in IN_PLACE_AT_ROOT
    inside = [
        (primitive.name == "bcast" and rank == root)
        or (in_place and (primitive.name in IN_PLACE_EVERYWHERE or (at_root and rank == root)))
        for rank in range(size)
    ]
    memory = [buffers(primitive, data, rank, root, count, inside[rank]) for rank in range(size)]
    adapt, on_device = WAYS[way]
    programs = []
    for rank, (send, recv) in enumerate(memory):
        program = compiled(ProgramKey(algorithm, rank, size, root, count, 8, inside[rank], segments, segment))
        if mean:
            steps = [*program.steps, Divide(Region(RECV, 0, 8 * count))]
            program = Program(steps, program.messages, program.scratch)
        programs.append(adapt(program, send.nbytes, recv.nbytes))
    order = list(range(size))
    random.Random(count).shuffle(order)
    Machine(programs, memory, np.add, eager, on_device).run(order)
    for rank, (_, recv) in enumerate(memory):
        wanted = expected(primitive.name, data, rank, root)
        if wanted is not None and not (primitive.name == "scatter" and inside[rank]):
            wanted = wanted // size if mean else wanted
            assert np.array_equal(recv[: wanted.size], wanted)
    return programs


@pytest.mark.parametrize("sizes", [(1, 2, 3), pytest.param((5,), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", EVEN, ids=str)
def test_small_machine(algorithm, way, sizes):
    for size in sizes:
        for in_place in (False, True):
            for count in (0, 37):
                run(
                    algorithm,
                    size,
                    way,
                    size // 2 if algorithm.primitive.rooted else 0,
                    count,
                    24,
                    3,
                    in_place,
                    count > 9,
                )


@examples(10)
@given(st.data())
@pytest.mark.parametrize("algorithm", EVEN, ids=str)
def test_drawn_machines(algorithm, data):
    size = data.draw(st.integers(1, 9), "size")
    run(
        algorithm,
        size,
        data.draw(st.sampled_from(list(WAYS)), "way"),
        root=data.draw(st.integers(0, size - 1), "root"),
        count=data.draw(st.integers(0, 60), "count"),
        segment=8 * data.draw(st.integers(1, 40), "segment"),
        segments=data.draw(st.integers(1, 6), "segments"),
        in_place=data.draw(st.booleans(), "in place"),
        eager=data.draw(st.booleans(), "eager"),
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
def test_means_are_taken_before_they_are_copied_back(algorithm, way):
    for size in (1, 2, 3, 4):
        run(find("allreduce", algorithm), size, way, count=37, segment=64, mean=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_machine_without_finishes_fails(way):
    """Check that a program that does not wait for the GPU gives wrong results, as the tests above assume."""
    adapt, on_device = WAYS[way]
    memory = [[np.arange(64), np.zeros(64, int)] for _ in range(2)]
    programs = []
    for rank in range(2):
        program = adapt(compiled(ProgramKey(find("allreduce", "ring"), rank, 2, 0, 64, 8, False, 1, 64)), 512, 512)
        steps = [step for step in program.steps if not isinstance(step, Finish)]
        programs.append(Program(steps, program.messages, program.scratch))
    with pytest.raises(AssertionError):
        Machine(programs, memory, np.add, False, on_device).run([0, 1])


def large(way, primitive="allreduce", algorithm="ring", size=2, count=4 * PIECE // 8, segment=PIECE):
    program = compiled(ProgramKey(find(primitive, algorithm), 0, size, 0, count, 8, False, 1, segment))
    return WAYS[way][0](program, 8 * count, 8 * count)


def test_a_segment_is_combined_while_the_next_is_received():
    """Check that on the unstaged path, sends of results wait for the GPU, but the next combination does not."""
    steps = large("unstaged").steps
    combined = [number for number, step in enumerate(steps) if isinstance(step, Apply)]
    assert len(combined) == 2
    assert not any(isinstance(step, Finish) for step in steps[combined[0] : combined[1]])
    sent = next(number for number in range(combined[1], len(steps)) if isinstance(steps[number], Start))
    waits = [step for step in steps[combined[1] : sent + 1] if isinstance(step, Finish)]
    assert waits == [] or waits[0].step >= combined[0]


def test_staging_overlaps():
    """Check that pieces are fetched ahead, waited for only when needed, and delivered before the last message."""
    steps = large("staged").steps
    fetches = [n for n, s in enumerate(steps) if isinstance(s, CopyBytes) and s.source.buffer == SEND]
    deliveries = [n for n, s in enumerate(steps) if isinstance(s, CopyBytes) and s.to.buffer == RECV]
    first_message = next(n for n, s in enumerate(steps) if isinstance(s, Start))
    last_message = max(n for n, s in enumerate(steps) if isinstance(s, Start))
    finishes = [s.step for s in steps if isinstance(s, Finish)]
    assert len(fetches) == len(deliveries) == 4
    assert max(fetches) < first_message and deliveries[0] < last_message
    assert finishes[0] == fetches[0], "it does not wait for more than the first piece"
    assert sorted(finishes) == finishes


def test_small_buffers_are_copied_whole():
    for primitive, algorithm in (("allgather", "bruck"), ("alltoall", "naive"), ("allreduce", "ring")):
        steps = large("staged", primitive, algorithm, size=8, count=8 * 16).steps
        copies = [step for step in steps if isinstance(step, CopyBytes) and SCRATCH != step.to.buffer]
        assert len(copies) == 1


def test_each_byte_is_copied_once():
    for primitive in ("allreduce", "reduce_scatter", "bcast", "scan"):
        for buffer in (SEND, RECV):
            copied = ByteSet()
            for step in large("staged", primitive, "ring", size=4).steps:
                for region in step if isinstance(step, CopyBytes) else ():
                    if region.buffer == buffer:
                        whole = region.start, region.start + region.size
                        assert copied.missing(*whole) == [whole]
                        copied.add(*whole)


def test_it_begins_with_the_callers_work():
    for way in WAYS:
        assert isinstance(large(way).steps[0], Ready)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12), st.integers(0, 40), st.integers(0, 30))
def test_sets_of_bytes(added, start, length):
    ours, theirs = ByteSet(), set()
    for first, size in added:
        ours.add(first, first + size)
        theirs |= set(range(first, first + size))
    intervals = list(ours.intervals())
    assert all(end < after for (_, end), (after, _) in itertools.pairwise(intervals))
    assert {byte for first, end in intervals for byte in range(first, end)} == theirs
    missing = ours.missing(start, start + length)
    assert [byte for first, end in missing for byte in range(first, end)] == [
        byte for byte in range(start, start + length) if byte not in theirs
    ]
