"""A neighborhood is described in the same way for proofs, simulations and drawings."""

import re

import pytest

import pycoll
from pycoll import prove
from pycoll.draw.__main__ import main as draw
from pycoll.schedule.neighborhood import corners, neighborhood
from pycoll.schedule.neighbors import graph_neighbors, grid_neighbors
from pycoll.schedule.proof import prove as proved
from pycoll.schedule.registry import NEIGHBORHOODS, algorithms_of, find
from pycoll.simulate.__main__ import main as simulate

COMMANDS = {
    "prove": lambda arguments: prove.main(arguments),
    "simulate": lambda arguments: simulate([*arguments, "-b", "64"]),
    "draw": draw,
}


def test_a_grid_has_the_neighbors_of_create_cart():
    found = neighborhood(dims=[2, 3], periods=[False, True])
    assert [each[:2] for each in found.neighbors] == [each[:2] for each in grid_neighbors([2, 3], [False, True])]
    assert found.text == "partly periodic (0,1) grid of 2x3"
    assert neighborhood(dims=[4], periods=True).text == "periodic grid of 4"


def test_a_graph_has_the_ranks_of_its_edges():
    assert list(neighborhood(edges=[(0, 2), (2, 1)]).neighbors) == graph_neighbors(3, [(0, 2), (2, 1)])
    assert neighborhood(5, edges=[(0, 2)]).size == 5


def test_corners():
    assert len(corners(2)) == 8 and len(corners(3)) == 26
    middle = neighborhood(dims=[3, 3], offsets=corners(2)).neighbors[4]
    assert [edge.to for edge in middle.outgoing] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_algorithms_that_a_graph_does_not_support():
    graph, combining = neighborhood(edges=[(0, 1)]), find("neighbor_alltoall", "combining")
    assert not graph.supports(combining) and graph.supports(find("neighbor_alltoall", "direct"))
    assert neighborhood(dims=[2]).supports(combining)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"a neighborhood is a grid \(dims\) or a graph \(edges\): none is given"),
        ({"dims": [2], "edges": [(0, 1)]}, "both are given"),
        ({"dims": [2, 0]}, r"dims=\(2, 0\): the sides of a grid must be positive"),
        ({"dims": [2, 2], "ranks": 5}, r"dims=\(2, 2\) is a grid of 4 ranks, but ranks=5"),
        ({"dims": [2, 2], "periods": [True]}, r"periods=\(True,\) has 1 values for dims=\(2, 2\), which has 2"),
        ({"dims": [2, 2], "offsets": [(0, 1), (1,)]}, r"offsets: \(1,\) has 1 numbers for dims=\(2, 2\)"),
        ({"edges": [(0, 3)], "ranks": 3}, r"edges: \(0, 3\) is not an edge between 3 ranks"),
        ({"edges": [(0, 1)], "periods": True}, r"periods=True is for a grid \(dims\)"),
        ({"edges": [(0, 1)], "offsets": [(1,)]}, r"offsets=\[\(1,\)\] is for a grid \(dims\)"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        neighborhood(**arguments)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("allreduce ring --dims 2x2", "--dims is for collectives between neighbors, not for allreduce"),
        ("allreduce ring --edges 0-1", "--edges is for collectives between neighbors, not for allreduce"),
        (
            "neighbor_alltoall direct --periods 1,0",
            "neighbor_alltoall needs --dims with the sides of a grid, or --edges",
        ),
        ("neighbor_alltoall direct --dims 2x", "argument --dims: '2x' is not the sides of a grid, for example 4x4"),
        ("neighbor_alltoall direct --dims 2 --periods 2", "argument --periods: '2' is not 0 or 1 for each dimension"),
        ("neighbor_alltoall direct --dims 2 --periods 1,0", "periods=(True, False) has 2 values for dims=(2,)"),
        ("neighbor_alltoall direct --dims 2 --offsets sides", "argument --offsets: 'sides' is not corners or a list"),
        ("neighbor_alltoall direct --edges 0-1-2", "argument --edges: '0-1-2' is not a list of edges"),
        ("neighbor_alltoall combining --edges 0-1", "algorithm='combining' needs a grid"),
        ("neighbor_alltoall combining --dims 1x1", "algorithm='combining': rank 0 has no neighbors"),
        ("neighbor_alltoall ring --dims 2x2", "algorithm='ring' is not one of the algorithms of neighbor_alltoall"),
    ],
)
def test_all_commands_refuse_the_same(command, options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        COMMANDS[command](options.split())
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "options",
    [
        "neighbor_alltoall combining --dims 2x3 --periods 0,1 --offsets corners",
        "neighbor_alltoallw direct --dims 2x2 --offsets=-1,0:1,1",
        "neighbor_allgatherv two_level --edges 0-1,0-1,1-2,2-2",
    ],
)
def test_all_commands_know_neighbors(command, options, capsys):
    assert COMMANDS[command](options.split()) in (None, 0)
    assert options.split()[1] in capsys.readouterr().out


def test_steps_of_one_topology(capsys):
    assert prove.main(["neighbor_alltoall", "direct", "--dims", "3", "--periods", "--steps", "3", "--bytes", "4"]) == 0
    out = capsys.readouterr().out
    assert "send sendbuf[0:4] to rank 2" in out and "receive recvbuf[4:8] from rank 1" in out
    for wrong, why in [("--dims 3", "--steps 4: the grid of 3 has 3 ranks"), ("", "needs --dims or --edges")]:
        with pytest.raises(SystemExit):
            prove.main(f"neighbor_alltoall direct --steps 4 {wrong}".split())
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "algorithm"), [(name, each) for name in NEIGHBORHOODS for each in algorithms_of(name)]
)
def test_the_simulation_sends_what_the_proof_counts(name, algorithm):
    grid, hosts = neighborhood(dims=[3, 4], periods=True, offsets=corners(2)), tuple(rank // 4 for rank in range(12))
    found = find(name, algorithm)
    edges = grid.known_to(found, hosts)

    def nbytes(block):
        return 8 * len(edges[block[1]].edges) if isinstance(block, tuple) and block[0] == "counts" else 100

    counts = proved(found, 12, hosts=hosts, neighbors=edges, nbytes=nbytes)
    given = {"dims": [3, 4], "periods": True, "offsets": corners(2), "ranks_per_host": 4}
    result = pycoll.simulate(name, algorithm=algorithm, nbytes=100, **given)
    assert list(result.messages) == counts.messages and list(result.sent) == counts.sent
    between = sum(passed.nbytes for link, passed in result.links.items() if re.fullmatch(r"host \d+ out", link))
    assert between == sum(counts.crossing.values())


def test_the_simulation_needs_ranks_or_a_topology():
    with pytest.raises(TypeError, match="ranks=None: the number of ranks is missing"):
        pycoll.simulate("allreduce", algorithm="ring", nbytes=8)
    with pytest.raises(ValueError, match="dims, periods, offsets and edges are for collectives between neighbors"):
        pycoll.simulate("allreduce", algorithm="ring", nbytes=8, ranks=4, dims=[2, 2])
