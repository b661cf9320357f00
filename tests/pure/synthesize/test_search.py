"""In each round of a search, ranks send what they held before, and links carry what they can."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycoll.base.links import Times
from pycoll.simulate.network import Network
from pycoll.simulate.topology_names import parse
from pycoll.synthesize import direct_links
from pycoll.synthesize.search import durations, spread
from tests.drawn import examples
from tests.pure.simulate.test_graph import connected


@examples(60)
@given(connected(), st.integers(1, 3), st.integers(1, 9), st.data())
def test_each_round_is_possible(links, chunks, most, data):
    ranks, nbytes = 1 + max(map(max, links)), 1000.0
    duration = data.draw(st.sampled_from(durations(links, nbytes)))
    held = np.repeat(np.eye(ranks, dtype=bool), chunks, axis=1)
    rounds = spread(links, held, nbytes, duration, 0, most)
    if rounds is None:
        assert duration < max(times.alpha + times.beta * nbytes for times in links.values())
        return
    for transfers in rounds:
        for (source, to), blocks in Counter((source, to) for source, to, _ in transfers).items():
            assert links[source, to].alpha + blocks * links[source, to].beta * nbytes <= duration * (1 + 1e-6)
        assert max(Counter(source for source, _, _ in transfers).values()) <= most
        assert all(held[source, block] and not held[to, block] for source, to, block in transfers)
        assert len({(to, block) for _, to, block in transfers}) == len(transfers), "received twice"
        for _, to, block in transfers:
            held[to, block] = True
    assert held.all()


def test_a_torus_needs_about_as_many_rounds_as_its_links_allow():
    links = direct_links(parse("torus:8x8"), Network())
    held = np.eye(64, dtype=bool)
    found = [len(spread(links, held, 1e6, durations(links, 1e6)[0], seed)) for seed in range(4)]
    assert 16 <= min(found) <= 17, "each rank receives 63 blocks on four links"


def test_a_slow_link_carries_no_block_that_a_fast_one_brings_sooner():
    """Both ranks of a pair have a slow link from the other pair; each block needs one of them only."""
    fast, slow = Times(0.0, 1e-9), Times(0.0, 1e-8)
    links = {(0, 1): fast, (1, 0): fast, (2, 3): fast, (3, 2): fast}
    links |= dict.fromkeys(((0, 2), (2, 0), (1, 3), (3, 1)), slow)
    rounds = spread(links, np.eye(4, dtype=bool), 1.0, 1e-8, 0)
    crossings = Counter((source, to) for each in rounds for source, to, _ in each if links[source, to] == slow)
    assert sum(crossings.values()) == 4, "two blocks in each direction"


def test_durations_are_those_of_blocks():
    links = {(0, 1): Times(1e-6, 1e-9), (1, 0): Times(1e-6, 3e-9)}
    assert durations(links, 1000) == [2e-6, 4e-6, 8e-6]
