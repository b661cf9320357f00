"""Trivance: rounds, distances and messages for powers of three, and for other numbers of ranks."""

import pytest

from pycoll.schedule.moves import Send
from pycoll.schedule.registry import find


def test_one_rank_does_nothing():
    for primitive in ("allgather", "reduce_scatter", "allreduce"):
        assert list(find(primitive, "trivance").schedule(0, 1)) == []


@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_powers_of_three(power):
    rounds = list(find("reduce_scatter", "trivance").schedule(0, 3**power))
    sends = [[(move.to, len(move.blocks)) for move in moves if isinstance(move, Send)] for moves in rounds]
    expected = [{(3**n, 3 ** (power - 1 - n)), (3**power - 3**n, 3 ** (power - 1 - n))} for n in range(power)]
    assert [set(each) for each in sends] == expected


def test_other_numbers_take_turns_where_sides_differ():
    assert [len(moves) for moves in find("allgather", "trivance").schedule(0, 7)] == [4, 2, 2]
