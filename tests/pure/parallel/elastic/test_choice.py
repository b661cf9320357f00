"""From which copies training goes on."""

from hypothesis import given
from hypothesis import strategies as st

from pycoll.parallel.elastic.choice import choose, missing
from pycoll.parallel.elastic.copies import Label


def labels(build, owners, steps):
    return [Label(build, step, owner, owners) for owner in owners for step in steps.get(owner, ())]


def test_replicas_go_on_from_the_most_advanced_one():
    found = [Label(1, step, 0, (0,)) for step in (7, 8, 7)]
    assert choose(found, lockstep=True) == ({Label(1, 8, 0, (0,))}, 8)


def test_shards_go_on_from_the_newest_step_that_all_have():
    found = labels(1, (0, 1, 2), {0: [5, 6, 7], 1: [5, 6], 2: [6, 7]})
    assert choose(found, lockstep=True) == ({Label(1, 6, owner, (0, 1, 2)) for owner in range(3)}, 6)


def test_without_lockstep_each_part_is_the_newest_one_and_no_step_is_left_out():
    found = labels(1, (0, 2), {0: [5, 9], 2: [4, 6]})
    assert choose(found, lockstep=False) == ({Label(1, 9, 0, (0, 2)), Label(1, 6, 2, (0, 2))}, 6)


def test_copies_of_the_driver_before_are_used_until_all_ranks_have_those_of_the_next():
    before = labels(1, (0, 1, 2), {0: [5], 1: [5], 2: [5]})
    after = labels(2, (0, 1), {0: [5]})
    assert choose(before + after, lockstep=True).labels == {*before}
    assert choose(before + labels(2, (0, 1), {0: [5], 1: [5]}), lockstep=True).labels == {
        Label(2, 5, 0, (0, 1)),
        Label(2, 5, 1, (0, 1)),
    }


def test_lost_shards_are_named():
    found = labels(3, (0, 1, 2, 3), {0: [5], 3: [5]})
    assert choose(found, lockstep=True) is None
    assert missing(found) == [1, 2]
    assert choose([], lockstep=True) is None and missing([]) == []


@given(st.data())
def test_lockstep_uses_one_step_and_all_parts(data):
    owners = tuple(range(data.draw(st.integers(1, 5))))
    steps = {owner: data.draw(st.sets(st.integers(0, 4))) for owner in owners}
    choice = choose(labels(1, owners, steps), lockstep=True)
    common = set.intersection(*steps.values())
    assert (choice is None) == (not common)
    if choice:
        assert choice.step == max(common)
        assert sorted(label.owner for label in choice.labels) == [*owners]
        assert {label.step for label in choice.labels} == {choice.step}
