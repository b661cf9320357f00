"""Each challenge is wrong as it is given, can be solved, and says what is wrong."""

import inspect

import pytest

from pycoll.challenges.tasks import CHALLENGES, judge, read_challenge
from pycoll.schedule.registry import PRIMITIVES

from . import solutions

NAMES = [*CHALLENGES]


def test_there_are_a_dozen_for_most_collectives():
    assert len(CHALLENGES) == 12
    assert len({each.primitive for each in CHALLENGES.values()}) >= 7
    for each in CHALLENGES.values():
        assert each.primitive in PRIMITIVES and each.text.startswith("@algorithm(") and each.task.endswith((".", "?"))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_wrong_as_it_is_given(name):
    verdict = judge(name, CHALLENGES[name].text)
    assert not verdict.proved and len(verdict.text) > 20


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_solved(name):
    verdict = judge(name, inspect.getsource(getattr(solutions, name)))
    assert verdict.proved and verdict.text == "Proved for 1 to 32 ranks.", verdict.text


@pytest.mark.parametrize(
    "name, says",
    [
        ("logarithm", "It is right, but it has 3 rounds on 4 ranks; lg(p) is 2."),
        ("half_the_bytes", "It is right, but a rank sends 2 Z on 3 ranks; 2(p-1)/p is 1.33 Z."),
        ("one_at_a_time", "It is right, but rank 0 of 3 sends 2 messages in one round."),
    ],
)
def test_a_right_algorithm_can_miss_the_goal(name, says):
    assert judge(name, CHALLENGES[name].text).text == says


def test_the_line_is_that_of_the_text():
    verdict = judge("chain", CHALLENGES["chain"].text)
    assert verdict.line and "yield (Send(" in CHALLENGES["chain"].text.splitlines()[verdict.line - 1]


def test_a_text_has_one_algorithm():
    with pytest.raises(ValueError, match="the text defines 0 algorithms"):
        read_challenge("blank", "pass")


def test_a_wrong_algorithm_does_not_only_miss_the_goal():
    few = inspect.getsource(solutions.logarithm).replace("while distance < size", "while distance < size <= 4")
    assert "ends without" in judge("logarithm", few).text


def test_each_message_in_a_round_of_its_own_takes_too_long():
    text = """
@algorithm()
def slow(rank, size):
    for source in range(size):
        for to in range(size):
            if rank == source != to:
                yield (Send(to, [(source, to)]),)
            elif rank == to != source:
                yield (Recv(source, [(source, to)]),)
"""
    assert "It is right, but it has" in judge("one_at_a_time", text).text


def test_a_function_may_return_its_rounds():
    text = "@algorithm()\ndef rounds(rank, size, root):\n    return [(Send(size, [0]),)]\n"
    assert judge("chain", text).text.startswith("bcast.rounds on 1 rank")
