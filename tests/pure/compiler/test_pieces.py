"""Programs whose messages are sent in pieces: what is sent, in which order, and that nothing else changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.blocks import ProgramKey, compiled
from pycoll.compiler.pieces import in_pieces
from pycoll.compiler.program import Message, Program, Region, Start, Wait
from pycoll.schedule.registry import find

LIMIT = 100


def program_of(*sizes):
    """A program that sends messages of these sizes to ranks 1, 2, ..."""
    messages = [Message(True, peer, Region(0, 10 * peer, size), 0) for peer, size in enumerate(sizes, 1)]
    numbers = range(len(messages))
    return Program([*map(Start, numbers), *map(Wait, numbers)], messages, 0)


def sizes_to(program, peer):
    return [message.region.size for message in program.messages if message.peer == peer]


@pytest.mark.parametrize(
    "size, pieces",
    [(0, [0]), (100, [100]), (101, [100, 1]), (250, [100, 100, 50]), (300, [100, 100, 100]), (301, [301])],
)
def test_messages_are_cut_if_few_pieces_suffice(size, pieces):
    program = in_pieces(program_of(size), (LIMIT, LIMIT), 3)
    assert sizes_to(program, 1) == pieces


def test_messages_to_other_hosts_are_whole():
    program = in_pieces(program_of(150, 150), (LIMIT, LIMIT, 0), 3)
    assert sizes_to(program, 1) == [100, 50]
    assert sizes_to(program, 2) == [150]


def test_without_a_limit_the_program_is_the_same_object():
    program = program_of(150)
    assert in_pieces(program, (), 3) is program
    assert in_pieces(program, (0, 0), 3) is program


def test_pieces_are_started_and_awaited_where_the_message_was():
    program = in_pieces(program_of(150, 50), (LIMIT,) * 3, 3)
    assert program.steps == [Start(0), Start(1), Start(2), Wait(0), Wait(1), Wait(2)]
    assert [message.region for message in program.messages] == [
        *(Region(0, 10, 100), Region(0, 110, 50), Region(0, 20, 50)),
    ]


@given(st.lists(st.integers(0, 600), max_size=5), st.integers(1, 200), st.integers(1, 6))
def test_the_pieces_are_the_messages(sizes, limit, most):
    whole = program_of(*sizes)
    program = in_pieces(whole, (limit,) * 6, most)
    for peer, size in enumerate(sizes, 1):
        pieces = sizes_to(program, peer)
        assert sum(pieces) == size
        assert len(pieces) <= most
        assert len(pieces) == 1 or max(pieces) == limit
    started = [step.message for step in program.steps if isinstance(step, Start)]
    assert started == list(range(len(program.messages)))


@pytest.mark.parametrize("primitive, algorithm", [("bcast", "tree"), ("allreduce", "ring")])
def test_programs_of_collectives(primitive, algorithm):
    for pieces in (4, 5):
        length = LIMIT * pieces * (1 if primitive == "bcast" else 2)
        key = ProgramKey(find(primitive, algorithm), 0, 2, 0, length, 1, True, 1, 1 << 20)
        whole, cut = compiled(key), compiled(key._replace(eager=(LIMIT, LIMIT), pieces=4))
        assert len(cut.messages) == len(whole.messages) * (pieces if pieces == 4 else 1)
