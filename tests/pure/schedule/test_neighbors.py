"""Neighborhoods, and the proof of what is sent between neighbors."""

import math
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll import prove as command
from pycoll.schedule.cuts import whole
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.neighbors import (
    Edge,
    Stencil,
    graph_neighbors,
    grid_neighbors,
    neighbors,
    on_hosts,
    stencil_neighbors,
    without_neighbors,
)
from pycoll.schedule.proof import ProofError, prove
from pycoll.schedule.registry import NEIGHBORHOODS, Algorithm, algorithms_of, find

DIRECT = [algorithms_of(name)["direct"] for name in NEIGHBORHOODS]


def test_what_a_rank_sends_to_the_left_arrives_from_the_right():
    """Also where both are the same rank."""
    for size in (1, 2, 3):
        around = grid_neighbors([size], [True])
        for rank in range(size):
            left, right = around[rank].outgoing
            assert left.to == (rank - 1) % size and right.to == (rank + 1) % size
            assert around[left.to].incoming[1] == left and around[right.to].incoming[0] == right


def test_a_grid_ends_where_it_is_not_periodic():
    corner, *_ = grid_neighbors([2, 3], [False, True])
    assert [edge and edge.to for edge in corner.outgoing] == [None, 3, 2, 1]
    assert [edge and edge.source for edge in corner.incoming] == [None, 3, 2, 1]


def test_several_edges_between_two_ranks_match_in_their_order():
    first, second = graph_neighbors(2, [(0, 1), (1, 0), (0, 1), (0, 0)])
    assert first.outgoing == (Edge(0, 1, 0), Edge(0, 1, 1), Edge(0, 0, 0)) and second.incoming == first.outgoing[:2]
    assert first.incoming == (Edge(1, 0, 0), Edge(0, 0, 0))


@pytest.mark.parametrize("algorithm", DIRECT, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 12])
def test_proved_for_grids_and_graphs(algorithm, size):
    for topology, _ in command.topologies(size):
        counts = prove(algorithm, size, neighbors=topology)
        assert counts.rounds <= 1
        sent = [[edge.to for edge in each.outgoing if edge and edge.to != rank] for rank, each in enumerate(topology)]
        once = not algorithm.primitive.takes_all  # an all-gather sends its block once to each neighbor
        assert counts.messages == [len(set(to) if once else to) for to in sent]


@given(st.data())
def test_two_hosts_exchange_one_message_in_each_direction(data):
    """An all-gather sends each block once to each host that needs it; an all-to-all has a block for each edge."""
    size = data.draw(st.integers(1, 8))
    ranks = st.integers(0, size - 1)
    edges = data.draw(st.lists(st.tuples(ranks, ranks), max_size=4 * size))
    hosts = tuple(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    everyone = on_hosts(graph_neighbors(size, edges), hosts)
    away = [(a, b) for a, b in edges if hosts[a] != hosts[b]]
    blocks = {
        "neighbor_alltoallv": Counter((hosts[a], hosts[b]) for a, b in away),
        "neighbor_allgatherv": Counter((hosts[a], host) for a, host in {(a, hosts[b]) for a, b in away}),
    }
    for name, expected in blocks.items():
        algorithm = find(name, "two_level")
        counts = prove(algorithm, size, hosts=hosts, neighbors=everyone)
        between = [
            (hosts[rank], hosts[move.to])
            for rank in range(size)
            for moves in algorithm.schedule(rank, size, hosts=hosts, neighbors=everyone[rank])
            for move in moves
            if isinstance(move, Send) and hosts[rank] != hosts[move.to]
        ]
        assert sorted(between) == sorted(expected) and counts.crossing == expected


def crossed(rank, neighbors):
    """Match messages by place instead of number: wrong between two ranks on a periodic side."""
    sends = [Send(edge.to, [edge]) for edge in neighbors.outgoing]
    yield (*sends, *(Recv(edge.source, [edge]) for edge in neighbors.incoming))


def test_a_wrong_order_is_found():
    wrong = Algorithm(NEIGHBORHOODS["neighbor_alltoall"], "wrong", crossed, whole, True, ("rank", "neighbors"))
    prove(wrong, 3, neighbors=grid_neighbors([3], [True]))
    with pytest.raises(ProofError, match=r"neighbor_alltoall.wrong on 2 ranks"):
        prove(wrong, 2, neighbors=grid_neighbors([2], [True]))


def test_the_command_proves_them(capsys):
    assert command.main(["neighbor_alltoallv", "direct", "-n", "1-4"]) == 0
    assert capsys.readouterr().out.startswith("neighbor_alltoallv.direct  ")


def test_a_schedule_without_a_topology():
    with pytest.raises(ValueError, match=r"neighbor_allgather.direct depends on the topology of a communicator"):
        find("neighbor_allgather", "direct").schedule(0, 2)


def test_negative_ranks_are_no_neighbors():
    assert neighbors(0, [-1, -2], [-1])[:2] == ((None, None), (None,))


@pytest.mark.parametrize("dims, most", [((8,), 2), ((4, 4), 4), ((3, 4, 5), 6), ((2, 4), 3), ((1, 4, 4), 4)])
def test_combining_sends_a_message_for_each_direction(dims, most):
    """Check the messages and the rounds on periodic grids with the neighbors on all sides and at the corners."""
    stencil = Stencil(dims, (True,) * len(dims), tuple(product((-1, 0, 1), repeat=len(dims))))
    size = math.prod(dims)
    edges = [stencil_neighbors(rank, stencil) for rank in range(size)]
    counts = prove(find("neighbor_alltoall", "combining"), size, neighbors=edges)
    assert counts.rounds == sum(side > 1 for side in dims)
    assert set(counts.messages) == {most + (dims == (2, 4))}, "both neighbors on a side of two are one rank"


@given(st.data())
def test_combining_is_right_for_any_offsets(data):
    dims = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    periods = [data.draw(st.booleans()) for _ in dims]
    offset = st.tuples(*[st.integers(-3, 3)] * len(dims))
    stencil = Stencil(tuple(dims), tuple(periods), tuple(data.draw(st.lists(offset, max_size=6))))
    size = math.prod(dims)
    edges = [stencil_neighbors(rank, stencil) for rank in range(size)]
    combining = find("neighbor_alltoall", "combining")
    if (alone := without_neighbors(stencil)) is None:
        prove(combining, size, neighbors=edges)
    else:
        with pytest.raises(ValueError, match=f"rank {alone} has no neighbors"):
            list(combining.schedule(0, size, neighbors=edges[0]))
