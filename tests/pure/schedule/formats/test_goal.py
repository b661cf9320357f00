"""Schedules in GOAL: what is written, and which messages are proved."""

import re

import pytest

from pycoll.schedule.formats import NoAlgorithm, goal
from pycoll.schedule.formats.plan import plan_of
from pycoll.schedule.registry import find


def test_messages_calculations_and_dependencies():
    text = goal.write(plan_of(find("allreduce", "ring"), 3, nbytes=lambda blocks: 1000 * len(blocks), gamma=1e-10))
    assert text.startswith("num_ranks 3\n")
    sent = re.findall(r"rank (\d) {|: send 1000b to (\d)", text)
    assert [to for _, to in sent if to] == ["1"] * 4 + ["2"] * 4 + ["0"] * 4
    assert text.count("recv 1000b") == 12 and text.count("calc 100") == 6  # at 0.1 ns for each byte
    labels = set(re.findall(r"^(l\d+):", text, re.MULTILINE))
    assert set(re.findall(r"^(l\d+) requires (l\d+)", text, re.MULTILINE)) >= {("l4", "l1"), ("l4", "l3"), ("l3", "l2")}
    assert {label for pair in re.findall(r"(l\d+) requires (l\d+)", text) for label in pair} <= labels


PING_PONG = """num_ranks 2
// with a comment
rank 0 {
  first: calc 100 cpu 1
  there: send 8b to 1 tag 7 cpu 0
  back: recv 16b from 1 tag 8
  there requires first
  /* a comment of
     two lines */
  back irequires there
}
rank 1 {
  recv 8b from 0 tag 7
  back: send 16b to 0 tag 8 nic 1
}
"""


def test_a_file_of_another_program():
    with pytest.raises(NoAlgorithm, match="all 2 messages between 2 ranks match, and all operations end; GOAL has no"):
        goal.check(PING_PONG)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("send 8b", "send 9b", "rank 0, line 5 .*: 9 bytes; rank 1, line 13 .*: 8 bytes"),
        ("tag 7 cpu", "tag 9 cpu", r"rank 1, line 13 .*: a message that rank 0 never sends"),
        ("recv 16b", "send 16b", r"rank 0, line 6 \(send 16b from 1 tag 8\): a message that rank 1 never receives"),
        ("there requires first", "there requires back", r"deadlock: rank 0, line 5 .* waits for rank 0, line 6 .*"),
        ("requires first", "requires last", "line 7: rank 0 has no operation last"),
        ("to 1", "to 2", "rank 0, line 5 .*: 2 is not another one of 2 ranks"),
        ("from 1", "from -1", "rank 0, line 6 .*: -1 is not another one of 2 ranks"),
        ("rank 1 {", "rank 2 {", "line 12: rank 2 is not one of 2 ranks"),
        ("rank 1 {", "rank 0 {", "line 12: rank 0 is not one of 2 ranks, or has two schedules"),
        ("rank 1 {\n", "", "line 12: 'recv 8b from 0 tag 7' belongs to no rank"),
        ("nic 1\n}", "nic 1", "the schedule of rank 1 has no end"),
        ("num_ranks 2\n", "", "line 2: rank 0 is not one of 0 ranks"),
        ("calc 100", "call 100", "line 4: 'first: call 100 cpu 1' is not a line of GOAL"),
    ],
)
def test_a_wrong_line_is_named(old, new, error):
    assert old in PING_PONG
    with pytest.raises(ValueError, match=error) as caught:
        goal.check(PING_PONG.replace(old, new, 1))
    assert not isinstance(caught.value, NoAlgorithm)


def test_messages_of_which_either_may_be_the_first():
    text = """num_ranks 2
rank 0 {
a: calc 1
one: send 8b to 1
other: send 8b to 1
one requires a
}
rank 1 {
recv 8b from 0
recv 8b from 0
}
"""
    with pytest.raises(
        ValueError, match=r"race: rank 0, line 4 .* and line 5 .* have one tag, and it is not known which"
    ):
        goal.check(text)
    with pytest.raises(NoAlgorithm):
        goal.check(text.replace("one requires a\n", ""))
