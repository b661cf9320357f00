"""The times of collectives in all groups of a mesh at once."""

from dataclasses import replace

import pytest

import pycoll
from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.simulate import Link, Network
from pycoll.simulate.training import Groups

BETA = 1e-9
NETWORK = Network(between=Link(1e-6, BETA, 1e-7), inside=Link(1e-7, BETA / 100, 1e-8), gamma=0.0)
Z = 1 << 20


def seconds(mesh, axis, primitive="allreduce", nbytes=Z, algorithm=None, **where):
    return (
        Groups(mesh, NETWORK, algorithms={axis: algorithm} if algorithm else {}, **where)
        .collective(axis, primitive, nbytes)
        .seconds
    )


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner", "tree"])
@pytest.mark.parametrize("topology", [None, "fat-tree:4x2:2", "torus:4x2"])
def test_a_single_group_takes_as_long_as_the_collective_alone(algorithm, topology):
    alone = pycoll.simulate("allreduce", algorithm=algorithm, ranks=8, nbytes=Z, network=NETWORK, topology=topology)
    assert seconds({"dp": 8}, "dp", algorithm=algorithm, topology=topology) == pytest.approx(alone.time, rel=1e-6)


def test_groups_share_the_links_of_their_hosts():
    alone = seconds({"dp": 4}, "dp", algorithm="ring")
    shared = seconds({"dp": 4, "tp": 4}, "dp", algorithm="ring", ranks_per_host=4)
    assert shared == pytest.approx(4 * 2 * 3 / 4 * Z * BETA, rel=0.02) and alone < shared / 3.5
    apart = seconds({"dp": 4, "tp": 4}, "dp", algorithm="ring")  # each rank on a host of its own
    assert apart == pytest.approx(alone)


def test_inner_groups_stay_inside_hosts():
    inside = seconds({"dp": 4, "tp": 4}, "tp", algorithm="ring", ranks_per_host=4)
    assert inside < seconds({"dp": 4, "tp": 4}, "tp", algorithm="ring", ranks_per_host=2) / 10


@pytest.mark.parametrize(
    "mesh", [{"dp": 4, "pp": 3, "tp": 2}, {"pp": 3, "dp": 8, "tp": 2}, {"tp": 2, "dp": 4, "pp": 2}]
)
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "bruck_whole"])
def test_symmetric_groups_take_as_long_as_generators(mesh, algorithm, monkeypatch):
    where = {"ranks_per_host": 4, "topology": "fat-tree:4x4:2"}
    generated = replace(find("allreduce", algorithm), symmetry=None)
    monkeypatch.setitem(PRIMITIVES["allreduce"].algorithms, "generated", generated)
    found = seconds(mesh, "dp", nbytes=1 << 16, algorithm=algorithm, **where)
    assert found == pytest.approx(seconds(mesh, "dp", nbytes=1 << 16, algorithm="generated", **where))


def test_equal_rounds_are_extrapolated_exactly():
    alone = pycoll.simulate("allreduce", algorithm="ring", ranks=96, nbytes=Z, network=NETWORK)
    assert seconds({"dp": 96}, "dp", algorithm="ring") == pytest.approx(alone.time, rel=1e-9)


def test_no_algorithm_is_faster_than_the_fastest():
    best = Groups({"dp": 16}, NETWORK).collective("dp", "allreduce", 1 << 14)
    names = ["ring", "recursive_doubling", "rabenseifner", "tree", "swing"]
    assert all(seconds({"dp": 16}, "dp", nbytes=1 << 14, algorithm=name) >= best.seconds for name in names)
    assert best.algorithm in pycoll.algorithms("allreduce")


def test_messages_of_all_stages_leave_at_once():
    assert seconds({"pp": 4}, "pp", "message") == pytest.approx(Z * BETA, rel=0.01)
    assert seconds({"pp": 4, "tp": 2}, "pp", "message", ranks_per_host=2) == pytest.approx(2 * Z * BETA, rel=0.01)


@pytest.mark.parametrize(
    "mesh, more, message",
    [
        ({"dq": 2}, {}, "'dq', which is not one of: dp, fsdp, pp, tp"),
        ({"dp": 2, "fsdp": 2}, {}, "either replicated or sharded"),
        ({"dp": 10**9, "tp": 8}, {}, "dp=1000000000,tp=8: ranks=8000000000: at most 16777216 ranks"),
        ({"dp": 0}, {}, "dp=0 is not a positive number of ranks"),
        ({}, {}, "the mesh has no axis"),
        (
            {"dp": 8, "tp": 4},
            {"topology": "torus:2x2", "ranks_per_host": 4},
            "32 ranks, but topology='torus:2x2' has 4 h",
        ),
        ({"dp": 8}, {"ranks_per_host": 0}, "ranks_per_host=0"),
        ({"dp": 8}, {"algorithms": {"tp": "ring"}}, "an algorithm for 'tp': the axes of the mesh are dp"),
    ],
)
def test_wrong_meshes_are_errors(mesh, more, message):
    with pytest.raises(ValueError, match=message):
        Groups(mesh, **more)
