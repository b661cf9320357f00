"""Which rank sends which elements to which rank."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pycoll.parallel.elastic.redistribute import PieceSpan, plan


def cut(size, cuts):
    """Spans between the cuts of an array."""
    places = [0, *sorted(cuts), size]
    return [PieceSpan("parameters", "w", start, stop) for start, stop in itertools.pairwise(places) if start < stop]


@given(st.integers(1, 40), st.data())
def test_each_rank_gets_each_element_once_from_a_rank_that_has_it(size, data):
    ranks = data.draw(st.integers(1, 4))
    have = [[] for _ in range(ranks)]
    for span in cut(size, data.draw(st.sets(st.integers(0, size)))):
        for rank in data.draw(st.sets(st.integers(0, ranks - 1), min_size=1)):
            have[rank].append(span)
    want = [cut(size, data.draw(st.sets(st.integers(0, size)))) for _ in range(ranks)]
    want[0] = want[0][1:]
    elements = [set() for _ in range(ranks)]
    for source, target, (kind, name, start, stop) in plan(have, want):
        holds = {element for span in have[source] for element in range(span.start, span.stop)}
        assert (kind, name) == ("parameters", "w") and holds >= set(range(start, stop))
        assert elements[target].isdisjoint(range(start, stop))
        elements[target].update(range(start, stop))
        own = {element for span in have[target] for element in range(span.start, span.stop)}
        assert source == target or own.isdisjoint(range(start, stop))
    for rank in range(ranks):
        assert elements[rank] == {element for span in want[rank] for element in range(span.start, span.stop)}


def test_replicas_share_the_work():
    span = PieceSpan("parameters", "w", 0, 8)
    sources = {target: source for source, target, _ in plan([[span], [span], [], []], [[span]] * 4)}
    assert sources == {0: 0, 1: 1, 2: 0, 3: 1}


def test_nothing_is_sent_for_arrays_that_nobody_has():
    assert plan([[]], [[PieceSpan("parameters", "w", 0, 8)]]) == []
