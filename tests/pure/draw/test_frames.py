"""The frames of drawings show the messages and blocks that the proof counts."""

import inspect
from collections import Counter
from itertools import pairwise

import pytest

from pycoll.draw.frames import film
from pycoll.draw.gallery import halves
from pycoll.draw.layout import layout
from pycoll.draw.names import by_rank
from pycoll.schedule.cuts import per_rank
from pycoll.schedule.neighborhood import corners, neighborhood
from pycoll.schedule.proof import ProofError, prove
from pycoll.schedule.registry import NEIGHBORHOODS, PRIMITIVES, Algorithm, algorithms_of, counts_of, find

from .films import each_algorithm, films


@each_algorithm
def test_frames_have_what_the_proof_counts(algorithm):
    for one in films(algorithm, 1, 2, 3, 4, 7, 8, 13):
        counts = prove(algorithm, one.size, one.root, 3, hosts=one.hosts)
        messages = [message for frame in one.frames for message in frame.messages]
        numbers = Counter(message.source for message in messages)
        sent, received, combined = Counter(), Counter(), Counter()
        for message in messages:
            sent[message.source] += len(message.blocks)
            received[message.to] += len(message.blocks)
            combined[message.to] += len(message.blocks) * message.combined
        assert [numbers[rank] for rank in range(one.size)] == counts.messages
        assert [sent[rank] for rank in range(one.size)] == counts.sent
        assert [received[rank] for rank in range(one.size)] == counts.received
        if not any(frame.local for frame in one.frames):
            assert [combined[rank] for rank in range(one.size)] == counts.combined
        assert [frame.step for frame in one.frames if not frame.local] == list(range(counts.rounds + 1))


@each_algorithm
def test_the_last_frame_has_all_that_is_promised(algorithm):
    for one in films(algorithm, 1, 2, 3, 5, 8):
        states = one.states()
        for rank, cells in enumerate(states[-1]):
            assert one.wanted[rank] <= set(cells)
            assert all(cells[block].finished for block in one.wanted[rank])
        if one.size > 1 and algorithm.primitive.name != "scan":
            assert not all(
                block in states[0][rank] and states[0][rank][block].finished
                for rank in range(one.size)
                for block in one.wanted[rank]
            )


@each_algorithm
def test_what_arrives_was_there_before(algorithm):
    """Check that only messages change blocks between frames, and that messages carry blocks that their source held."""
    for one in films(algorithm, 4, 5):
        before = [dict(held) for held in next(one.held())]
        for frame, held in zip(one.frames, one.held()):
            for message in frame.messages:
                for block in message.blocks:
                    sent, now = before[message.source][block], held[message.to][block]
                    assert set(sent.contributors) <= set(now.contributors)
                    assert message.combined or now == sent
            brought = {(message.to, block) for message in frame.messages for block in message.blocks}
            if frame.step and not frame.local and not one.hears:
                assert {(rank, block) for rank, written in frame.written.items() for block in written} == brought
            before = [dict(blocks) for blocks in held]


def test_watching_changes_no_counts():
    algorithm = find("allreduce", "double_tree")
    seen = []
    assert prove(algorithm, 6, segments=2, watch=seen.append) == prove(algorithm, 6, segments=2)
    assert [one.rank for one in seen[:6]] == list(range(6)) and not any(one.moves for one in seen[:6])
    assert seen[0].written[0].contributors == (0,)


def test_bytes_are_multiples_of_the_vector_and_counts_stand_beside_them():
    one = film(find("scatterv", "tree"), 4)
    assert by_rank(one, lambda counts: counts.sent) == ["0.75 Z + 64 B", "0", "0.25 Z + 32 B", "0"]
    assert [counts_of(0) in written for written in one.frames[1].written.values()] == [False, True]


def test_blocks_are_needed_until_their_last_use():
    states = film(find("reduce", "tree"), 4).states()
    assert [cells[0].needed for cells in states[0]] == [True] * 4
    assert [cells[0].needed for cells in states[1]] == [True, False, True, False]
    assert [cells[0].needed for cells in states[2]] == [True, False, False, False]


def test_a_schedule_that_is_wrong_is_not_drawn():
    def too_little(rank, size):
        yield from ()

    with pytest.raises(ProofError, match="without block"):
        film(Algorithm(PRIMITIVES["allgather"], "wrong", too_little, per_rank, True, ("rank", "size")), 2)


@each_algorithm
def test_the_cost_grows_to_that_of_the_proof(algorithm):
    for one in films(algorithm, 1, 4, 7):
        costs = [frame.cost for frame in one.frames]
        assert costs[0] == (0, 0, 0)
        assert all(now >= then for before, after in pairwise(costs) for then, now in zip(before, after))
        assert costs[-1] == pytest.approx((one.counts.alpha, one.counts.beta, one.counts.gamma))


@each_algorithm
def test_every_active_rank_has_a_line_that_yields(algorithm):
    for one in films(algorithm, 2, 5, 8):
        first, *others = one.lines
        assert first is algorithm.generator.__code__
        for code, frames in one.lines.items():
            source = inspect.getsource(code).splitlines()
            for frame, lines in zip(one.frames[1:], frames[1:]):
                assert all("yield" in source[line] for line in lines), (frame.title, lines)
                active = {rank for ranks in lines.values() for rank in ranks}
                assert active == set(frame.rounds) if code is first else active <= set(frame.rounds)
        assert others or algorithm.name != "rabenseifner"


@pytest.mark.parametrize("algorithm", [one for name in NEIGHBORHOODS for one in algorithms_of(name).values()], ids=str)
@pytest.mark.parametrize("given", [{"dims": [2, 3], "offsets": corners(2)}, {"dims": [2, 2], "periods": True}])
def test_films_between_neighbors_end_with_all_blocks(algorithm, given):
    near = neighborhood(**given)
    one = film(algorithm, near.size, hosts=halves(near.size) if algorithm.knows_hosts else None, neighborhood=near)
    states = one.states()
    arranged = layout(one, states)
    for rank, (cells, wanted) in enumerate(zip(states[-1], one.wanted)):
        assert wanted and all(cells[block].finished for block in wanted)
        assert wanted <= set(arranged.rows[-1][rank])
