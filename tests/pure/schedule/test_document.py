"""Schedules are the same after a round trip through a document; documents with errors are refused by name."""

import copy
import json
import random
from collections import Counter, defaultdict, deque

import pytest

from pycoll.prove import examine
from pycoll.schedule.document import algorithm_of, document_of, text_of
from pycoll.schedule.moves import Combine, Copy, Recv, Reduce, Send
from pycoll.schedule.own_file import load, problem
from pycoll.schedule.registry import PRIMITIVES, find, find_schedule
from tests.pure.schedule.test_proof import ALGORITHMS

WRITTEN = [algorithm for algorithm in ALGORITHMS if not algorithm.needs_counts]


@pytest.mark.parametrize("algorithm", WRITTEN, ids=str)
@pytest.mark.parametrize(
    "ranks", [2, 3, 6, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 5, 7, 8, 9))]
)
def test_every_algorithm_comes_back(algorithm, ranks):
    root, segments = (ranks - 1, 3) if algorithm.primitive.rooted else (0, 3)
    hosts = tuple(rank % 2 for rank in range(ranks)) if algorithm.knows_hosts and not algorithm.levels else None
    text = text_of(document_of(algorithm, ranks, root, segments, hosts))
    found = algorithm_of(json.loads(text), "found")
    for rank in range(ranks):
        before = [
            [described(move) for move in moves] for moves in algorithm.schedule(rank, ranks, root, segments, hosts)
        ]
        assert [[described(move) for move in moves] for moves in found.schedule(rank, ranks, root)] == before
    assert not examine(found, []).problem


def described(move):
    """Return a move with a list of its blocks, in whatever sequence they are."""
    if isinstance(move, Copy | Combine):
        return type(move), *move
    return type(move), list(move.blocks), *(value for value in move if value is not move.blocks)


def test_what_depends_on_counts_cannot_be_written():
    with pytest.raises(ValueError, match=r"alltoallv.tree sends counts of blocks first"):
        document_of(find("alltoallv", "tree"), 4)


RIGHT = document_of(find("allreduce", "ring"), 3)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.pop("schedule"), 'it is not an object with "schedule": 1'),
        (lambda d: d.pop("parts"), '"parts" is missing'),
        (lambda d: d.update(primitive=["bcast"]), '"primitive": ["bcast"] is not one of bcast, scatter'),
        (lambda d: d.update(ranks=True), '"ranks": true is not a number of at least 1'),
        (lambda d: d.update(root=3), '"root": 3 is not one of the ranks'),
        (lambda d: d.update(primitive="allgather", parts=2), '"parts": 2 is not the number of ranks'),
        (lambda d: d["rounds"].pop(), '"rounds" is not a list of lists of rounds, one for each rank'),
        (lambda d: d["rounds"][1].__setitem__(0, 7), '"rounds" is not a list of lists of rounds'),
        (lambda d: d["rounds"][1][2].append({}), "rank 1, round 3: {}: a move has one of send, receive"),
        (lambda d: d["rounds"][0][0][0].update(to=3), '{"send": [2], "to": 3}: 3 is not one of 3 ranks'),
        (lambda d: d["rounds"][0][0][0].pop("to"), "rank 0, round 1: {\"send\": [2]}: 'to' is missing"),
        (lambda d: d["rounds"][0][0][0].update(send=2), "blocks are a list"),
        (lambda d: d["rounds"][0][0][0].update(send=["a"]), '"a" is not a block'),
        (lambda d: d["rounds"][0][0][1].update(order="first"), "the order is before or after"),
    ],
)
def test_a_wrong_field_is_named(change, error):
    document = copy.deepcopy(RIGHT)
    change(document)
    with pytest.raises(ValueError) as caught:
        algorithm_of(document, "wrong")
    assert error in str(caught.value)


def test_other_sizes_are_refused():
    found = algorithm_of(RIGHT, "three")
    with pytest.raises(ValueError, match="three is a schedule for 3 ranks, not for 4 ranks"):
        list(found.schedule(0, 4))


def test_a_wrong_schedule_names_the_rank_and_the_round():
    document = copy.deepcopy(RIGHT)
    document["rounds"][2][1].reverse()
    document["rounds"][0][3][1]["receive"] = [2]
    assert "rank 0, round 4" in problem(algorithm_of(document, "wrong"), 3)


def test_a_file_is_registered_under_its_name(tmp_path):
    file = tmp_path / "of_three.json"
    file.write_text(text_of(RIGHT))
    assert load(file) == [("allreduce", "of_three")]
    try:
        assert find_schedule("allreduce", "of_three").only == (3, 0)
    finally:
        del PRIMITIVES["allreduce"].algorithms["of_three"]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("ring", text_of(RIGHT), "ring is the name of an algorithm of pycoll for allreduce: choose another name"),
        ("my-ring", text_of(RIGHT), "'my-ring' is not a name of letters, digits and _"),
        ("broken", text_of(RIGHT)[:-9], "Expecting"),
        ("deep", "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_registered(tmp_path, name, text, error):
    file = tmp_path / f"{name}.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        load(file)


def corrupted(document, draw):
    """Return the document with one random change."""
    document = copy.deepcopy(document)
    schedule = draw.choice(document["rounds"])
    moves = draw.choice(schedule)
    kind = draw.randrange(6)
    if kind == 0:
        moves.pop(draw.randrange(len(moves)))
    elif kind == 1:
        schedule.remove(moves)
    elif kind == 2:
        schedule.insert(draw.randrange(len(schedule)), moves)
    elif kind == 3:
        draw.shuffle(schedule)
    else:
        move = draw.choice(moves)
        field = draw.choice(sorted(move))
        values = {"order": ["before", "after", ""], "to": [0, 1, 2, 3], "from": [0, 1, 2, 3]}
        move[field] = draw.choice(values.get(field, [[], [0], [1], [2], [3], [0, 1], [[0, 1]]]))
    return document


def results(algorithm, ranks):
    """Run all ranks with sums of powers of 10 as their data, and messages that wait in the network."""
    held = [defaultdict(int, dict.fromkeys(range(3), 10**rank)) for rank in range(ranks)]
    network = defaultdict(deque)
    waiting = [deque(algorithm.schedule(rank, ranks)) for rank in range(ranks)]
    sent, moved = Counter(), True
    while moved:
        moved = False
        for rank, rounds in enumerate(waiting):
            if rounds and not sent[rank]:
                for move in rounds[0]:
                    if isinstance(move, Send):
                        network[rank, move.to].append([held[rank][block] for block in move.blocks])
                sent[rank] = moved = True
            wanted = Counter(move.source for move in rounds[0] if isinstance(move, Recv | Reduce)) if rounds else {}
            if rounds and all(len(network[source, rank]) >= count for source, count in wanted.items()):
                for move in rounds.popleft():
                    if isinstance(move, Recv | Reduce):
                        values = network[move.source, rank].popleft()
                        for block, value in zip(move.blocks, values, strict=True):
                            held[rank][block] = value + held[rank][block] * isinstance(move, Reduce)
                    elif isinstance(move, Copy | Combine):
                        raise AssertionError("the ring has none")
                sent[rank], moved = False, True
    assert not any(waiting) and not any(network.values())
    return [[values[part] for part in range(3)] for values in held]


def test_no_corrupted_schedule_is_proved_that_gives_a_wrong_result():
    draw, refused, wrong = random.Random(1), 0, 0
    for _ in range(500):
        try:
            found = algorithm_of(corrupted(RIGHT, draw), "corrupted")
        except ValueError:
            refused += 1
            continue
        if problem(found, 3):
            wrong += 1
        else:
            assert results(found, 3) == [[111] * 3] * 3
    assert refused > 10 and wrong > 300
