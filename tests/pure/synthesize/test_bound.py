"""The bandwidth bound is below the time of each schedule, and known where a network is regular."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base.links import Times, write
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from pycoll.simulate import Link, Network
from pycoll.simulate.topology_names import parse
from pycoll.synthesize import SERVED, direct_links
from pycoll.synthesize.bound import bandwidth_bound
from tests.drawn import examples
from tests.pure.simulate.test_graph import connected

BETA, NBYTES = 1e-9, 1 << 20
NETWORK = Network(Link(beta=BETA), gamma=0.0)


@pytest.mark.parametrize(
    ("primitive", "nbytes"),
    [("allgather", 15 / 16), ("reduce_scatter", 15 / 16), ("allreduce", 2 * 15 / 16), ("bcast", 1)],
)
def test_a_torus(primitive, nbytes):
    links = direct_links(parse("torus:4x4"), NETWORK)
    assert bandwidth_bound(primitive, links, 16, NBYTES) == pytest.approx(nbytes * NBYTES * BETA / 4)


@pytest.mark.parametrize(("primitive", "nbytes"), [("allgather", 0.75), ("reduce_scatter", 0.75), ("allreduce", 1)])
def test_two_islands_with_a_slow_link(primitive, nbytes):
    """Blocks of three ranks pass the slow link in one direction, those of one rank in the other."""
    fast, slow = Times(0.0, BETA), Times(0.0, 100 * BETA)
    links = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)], fast) | {(2, 3): slow, (3, 2): slow}
    assert bandwidth_bound(primitive, links, 4, NBYTES) == pytest.approx(nbytes * NBYTES * 100 * BETA)


@pytest.mark.parametrize(("root", "nbytes"), [(0, 1), (1, 1 / 100)])
def test_broadcast_does_not_use_links_to_the_root(root, nbytes):
    links = {(0, 1): Times(0.0, 100 * BETA), (1, 0): Times(0.0, BETA)}
    assert bandwidth_bound("bcast", links, 2, NBYTES, root) == pytest.approx(nbytes * NBYTES * 100 * BETA)


@examples(40)
@given(links=connected(most=6), primitive=st.sampled_from(SERVED), data=st.data())
def test_no_algorithm_is_faster(links, primitive, data, tmp_path_factory):
    links = {pair: Times(0.0, times.beta) for pair, times in links.items()}
    path = tmp_path_factory.getbasetemp() / "bound.json"
    write(path, links)
    ranks = 1 + max(map(max, links))
    root = data.draw(st.integers(0, ranks - 1)) if PRIMITIVES[primitive].rooted else 0
    name = data.draw(st.sampled_from([*algorithms_of(primitive)]))
    nbytes = 60 * 4096  # which all numbers of ranks divide
    same = {"network": Network(Link(), gamma=0.0), "topology": str(path), "root": root}
    time = pycoll.simulate(primitive, algorithm=name, ranks=ranks, nbytes=nbytes, **same).time
    assert time >= bandwidth_bound(primitive, links, ranks, nbytes, root) * (1 - 1e-9)
