"""Found schedules are proved, equal for equal arguments, and fast on the networks for which they were searched."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base.links import write
from pycoll.schedule.document import document_of
from pycoll.schedule.own_file import load, problem
from pycoll.schedule.proof import prove
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from pycoll.simulate import Link, Network
from pycoll.synthesize import SERVED, synthesize
from tests.drawn import examples
from tests.pure.simulate.test_graph import connected

ISLANDS = str(Path(__file__).parents[3] / "examples" / "islands.json")
NETWORK = Network(gamma=1e-12)  # GPUs combine at about 1 TB/s


@pytest.mark.parametrize("primitive", SERVED)
@pytest.mark.parametrize("topology", ["torus:2", "torus:3", "torus:4x3", "torus:2x3x2"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_tori(primitive, topology, chunks):
    kind = PRIMITIVES[primitive]
    root = 1 if kind.rooted else 0
    chunks = chunks if kind.cuts else 1
    found = synthesize(topology, primitive, nbytes=1 << 20, chunks=chunks, root=root, seeds=1)
    ranks, _ = found.algorithm.only
    assert problem(found.algorithm, ranks, root) == ""
    assert found.time > found.bound > 0


@examples(60)
@given(
    links=connected(),
    primitive=st.sampled_from(SERVED),
    nbytes=st.sampled_from([1, 1000, 1 << 24]),
    chunks=st.integers(1, 3),
    gamma=st.sampled_from([0.0, 1e-10]),
)
def test_any_graph(links, primitive, nbytes, chunks, gamma, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "graph.json"
    write(path, links)
    chunks = chunks if PRIMITIVES[primitive].cuts else 1
    found = synthesize(str(path), primitive, nbytes=nbytes, chunks=chunks, seeds=1, network=Network(gamma=gamma))
    assert problem(found.algorithm, found.algorithm.only[0]) == ""
    assert found.time >= found.bound * (1 - 1e-9)


def test_it_sends_the_fewest_possible_bytes():
    found = synthesize("torus:4x4", "allreduce", nbytes=1 << 20, seeds=1)
    counts = prove(found.algorithm, 16)
    assert sum(counts.sent) == 2 * 15 * 16 and sum(counts.combined) == 15 * 16


def test_equal_arguments_give_equal_schedules():
    one, other = (synthesize(ISLANDS, "allreduce", nbytes=1 << 20, network=NETWORK, seeds=2) for _ in range(2))
    assert document_of(one.algorithm, 24) == document_of(other.algorithm, 24)
    assert one.time == other.time
    more = synthesize(ISLANDS, "allreduce", nbytes=1 << 20, network=NETWORK, seeds=4)
    assert more.time <= one.time, "the searches of fewer seeds are among those of more"


def test_the_time_is_that_of_the_simulator(tmp_path):
    found = synthesize("torus:3x4", "allreduce", nbytes=1 << 20, chunks=2, name="found", seeds=1)
    found.register()
    try:
        same = {"ranks": 12, "nbytes": 1 << 20, "topology": "torus:3x4"}
        assert pycoll.simulate("allreduce", algorithm="found", **same).time == found.time
    finally:
        del PRIMITIVES["allreduce"].algorithms["found"]


def test_a_saved_schedule_is_an_algorithm(tmp_path):
    found = synthesize("torus:2x3", "bcast", nbytes=1 << 20, root=4, name="saved", seeds=1)
    found.save(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text()) == document_of(found.algorithm, 6, 4)
    try:
        assert load(tmp_path / "saved.json") == [("bcast", "saved")]
        assert problem(algorithms_of("bcast")["saved"], 6, 4) == ""
    finally:
        del PRIMITIVES["bcast"].algorithms["saved"]


def test_it_is_faster_than_the_catalogue_on_an_irregular_network():
    """The factor is 1.2 even if combining takes longer than most links (the default), and above 3 if it is fast."""
    for network, factor in ((Network(), 1.1), (NETWORK, 3.0)):
        same = {"nbytes": 256 << 20, "network": network, "topology": ISLANDS}
        found = synthesize(primitive="allreduce", seeds=1, **same)
        catalogue = (pycoll.simulate("allreduce", algorithm=name, ranks=24, **same) for name in ("ring", "two_level"))
        assert found.time * factor < min(each.time for each in catalogue)


def test_128_ranks_of_a_torus_are_near_the_bound():
    network = Network(gamma=0.0)
    found = synthesize("torus:16x8", "allreduce", nbytes=64 << 20, network=network, seeds=1)
    assert found.time < 1.1 * found.bound
    assert problem(found.algorithm, 128) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"primitive": "scan"}, "primitive='scan' is not one of: allgather, reduce_scatter, allreduce, bcast"),
        ({"topology": "torus"}, "topology='torus' is not one of"),
        ({"topology": "torus:1"}, "topology='torus:1' has no links from rank to rank"),
        ({"topology": "fat-tree:2x2"}, "topology='fat-tree:2x2' has no links from rank to rank"),
        ({"network": Network(Link(alpha=1e-6))}, r"network: between.beta=0\.0 is a link of infinite bandwidth"),
        ({"nbytes": 0}, "nbytes=0 is less than 1"),
        ({"chunks": 0}, "chunks=0 is less than 1"),
        ({"seeds": 0}, "seeds=0 is less than 1"),
        ({"root": 1}, "root=1: allreduce has no root"),
        ({"primitive": "bcast", "root": 4}, "root=4 is not one of 4 ranks"),
        ({"primitive": "allgather", "chunks": 2}, "chunks=2: allgather has one block for each rank"),
    ],
)
def test_wrong_arguments(change, why):
    right = {"topology": "torus:4", "primitive": "allreduce", "nbytes": 64}
    with pytest.raises(ValueError, match=why):
        synthesize(**{**right, **change})


def test_wrong_types():
    with pytest.raises(TypeError, match=r"network=4 is not a pycoll\.simulate\.Network"):
        synthesize("torus:4", "allreduce", nbytes=64, network=4)
    with pytest.raises(TypeError, match=r"seeds=1\.5 is not an integer"):
        synthesize("torus:4", "allreduce", nbytes=64, seeds=1.5)
    with pytest.raises(TypeError, match="topology=4 is not a text"):
        synthesize(4, "allreduce", nbytes=64)


def test_the_module_is_the_function():
    assert pycoll.synthesize.synthesize is synthesize
    same = {"nbytes": 8, "network": Network(Link(beta=1e-9), gamma=0.0)}
    assert pycoll.synthesize("torus:2", "allgather", **same).time == pytest.approx(4e-9)
