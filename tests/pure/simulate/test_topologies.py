"""Routes connect their ends by the fewest links, and messages that share a link share its bandwidth."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.schedule.moves import Recv, Send
from pycoll.simulate import Link, Network
from pycoll.simulate.__main__ import main as simulate_command
from pycoll.simulate.run import Cluster, Ranks
from pycoll.simulate.topologies import RankHosts
from pycoll.simulate.topology_names import parse
from tests.drawn import examples

ALPHA, BETA = 1e-6, 1e-9
NETWORK = Network(Link(ALPHA, BETA), Link(0.0, BETA / 10), gamma=0.0)
TORI = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def route(topology, source, to, hosts=None):
    topology = parse(topology)
    return [*topology.route(source, to, RankHosts(NETWORK, hosts or range(topology.size)))]


def written(sizes):
    return "torus:" + "x".join(map(str, sizes))


def distance(sizes, one, other):
    apart = np.subtract(np.unravel_index(one, sizes), np.unravel_index(other, sizes)) % sizes
    return int(np.minimum(apart, sizes - apart).sum())


@given(TORI, st.data())
def test_a_message_goes_from_neighbor_to_neighbor_by_the_shortest_way(sizes, data):
    hosts = st.integers(0, math.prod(sizes) - 1)
    source, to = data.draw(hosts), data.draw(hosts)
    at = source
    hops = route(written(sizes), source, to)
    for hop in hops:
        before, after = map(int, re.fullmatch(r"host (\d+) to host (\d+)", hop.name).groups())
        assert before == at and distance(sizes, before, after) == 1 and hop.beta == BETA
        at = after
    assert at == to and len(hops) == distance(sizes, source, to)


@examples(30)
@given(TORI.filter(lambda sizes: math.prod(sizes) <= 32))
def test_links_of_a_torus_carry_each_byte_as_often_as_it_hops(sizes):
    ranks = math.prod(sizes)
    outcome = pycoll.simulate(
        "alltoall", algorithm="pairwise", ranks=ranks, nbytes=8 * ranks, network=NETWORK, topology=written(sizes)
    )
    hops = sum(distance(sizes, one, other) for one in range(ranks) for other in range(ranks))
    assert sum(link.nbytes for link in outcome.links.values()) == 8 * hops


@pytest.mark.parametrize("away, longest", [(1, 1), (2, 2), (3, 3), (4, 2)])
def test_messages_share_the_links_of_a_ring(away, longest):
    """All ranks of a ring of eight send to the rank `away` ranks ahead: each link carries that many messages.

    At the largest distance, half of them go in each direction.
    """
    nbytes = 1_000_000
    rounds = [iter([(Send((rank + away) % 8, [0]), Recv((rank - away) % 8, [0]))]) for rank in range(8)]
    run = Ranks(rounds, Cluster(NETWORK, 8, None, parse("torus:8")), lambda blocks: nbytes, 1 << 40)
    run.run([0.0] * 8)
    assert {port.nbytes for port in run.cluster.ports.values()} == {longest * nbytes}
    assert max(run.ends) == pytest.approx(ALPHA + longest * nbytes * BETA)


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
def test_a_fat_tree_is_a_network_with_hosts_on_switches(algorithm):
    same = {"algorithm": algorithm, "ranks": 16, "nbytes": 1 << 20}
    tree = pycoll.simulate("allreduce", **same, network=NETWORK, topology="fat-tree:4x4:2")
    network = Network(NETWORK.between, NETWORK.inside, 0.0, hosts_per_switch=4, oversubscription=2.0)
    switches = pycoll.simulate("allreduce", **same, network=network)
    assert tree.links == switches.links and tree.time == switches.time


def test_a_dragonfly_takes_one_link_between_two_groups():
    """All messages from one group to another leave at one router, where those from the other group come in."""
    groups, routers, width = 5, 4, 3
    leaving, coming = {}, {}
    for source in range(groups * routers * width):
        for to in range(groups * routers * width):
            first, last = source // width, to // width
            out, *middle, into = route("dragonfly:5x4x3:2", source, to)
            assert (out.name, into.name) == (f"host {source} out", f"host {to} in")
            links = [re.fullmatch(r"(router|group) (\d+) to \1 (\d+)", hop.name).groups() for hop in middle]
            kinds = [kind for kind, *_ in links]
            pair = first // routers, last // routers
            if pair[0] == pair[1]:
                assert links == ([("router", str(first), str(last))] if first != last else [])
                continue
            cut = kinds.index("group")
            assert kinds.count("group") == 1 and cut <= 1 and len(links) <= cut + 2
            assert links[cut] == ("group", *map(str, pair))
            assert middle[cut].beta == BETA * 2 * (groups - 1) / (routers * width)
            assert links[0][1] == str(first) or cut == 0
            assert links[-1][2] == str(last) or cut == len(links) - 1
            leaving.setdefault(pair, set()).add(int(links[0][2]) if cut else first)
            coming.setdefault(pair, set()).add(int(links[-1][1]) if links[cut + 1 :] else last)
    for (group, other), (gate,) in leaving.items():
        assert coming[other, group] == {gate} and gate // routers == group
    assert len({gate for (gate,) in leaving.values()}) == groups * routers  # each router has one link to a group


def test_ranks_of_one_rail_need_no_other_card():
    hosts = [rank // 4 for rank in range(12)]
    assert [hop.name for hop in route("rails:3x4", 1, 9, hosts)] == ["card of rank 1 out", "card of rank 9 in"]
    names = [hop.name for hop in route("rails:3x4", 1, 10, hosts)]
    assert names == ["rank 1 out", "rank 2 in", "card of rank 2 out", "card of rank 10 in"]
    uneven = [0, 0, 1]
    names = [hop.name for hop in route("rails:2x2", 2, 1, uneven)]
    assert names == ["card of rank 2 out", "card of rank 0 in", "rank 0 out", "rank 1 in"]


def test_the_topology_says_how_many_ranks_share_a_host():
    same = {"algorithm": "two_level", "ranks": 16, "nbytes": 1 << 16, "network": NETWORK, "topology": "rails:4x4"}
    by_default = pycoll.simulate("allreduce", **same)
    assert by_default.links == pycoll.simulate("allreduce", **same, ranks_per_host=4).links
    assert by_default.links != pycoll.simulate("allreduce", **same, hosts=[rank // 8 for rank in range(16)]).links


def test_each_further_link_adds_latency():
    network = Network(Link(ALPHA, 0.0), gamma=0.0, hop=1e-7)
    for topology, links in (("torus:8", 4), ("fat-tree:5x1", 4), ("dragonfly:5x1x1", 3)):
        rounds = [iter([(Send(4, [0]),)]), *(iter(()) for _ in range(3)), iter([(Recv(0, [0]),)])]
        run = Ranks(rounds, Cluster(network, 5, None, parse(topology)), lambda blocks: 8, 1 << 40)
        run.run([0.0] * 5)
        assert run.ends[4] == pytest.approx(ALPHA + (links - 1) * 1e-7), topology


@pytest.mark.parametrize(
    "wrong, why",
    [
        ("torus", "is not one of: torus:NxNx..., fat-tree:LEAVESxHOSTS[:TAPER], dragonfly:"),
        ("torus:4xq", "is not one of"),
        ("torus:4x4:2", "is not one of"),
        ("cube:4", "is not one of"),
        ("rails:4", "is not one of"),
        ("dragonfly:4x4", "is not one of"),
        ("fat-tree:4x4:2:2", "is not one of"),
        ("fat-tree:4x4:0.5", "sizes and the taper are at least 1"),
        ("fat-tree:4x4:nan", "sizes and the taper are at least 1"),
        ("torus:4x0", "sizes and the taper are at least 1"),
        ("torus:3x5", "has hosts 0 to 14, but a rank is on 15"),
        ("rails:3x4", "has hosts 0 to 2, but a rank is on 3"),
    ],
)
def test_wrong_topologies(wrong, why, capsys):
    with pytest.raises(ValueError, match=re.escape(f"topology={wrong!r}") + ".*" + re.escape(why)):
        pycoll.simulate("allreduce", algorithm="ring", ranks=16, nbytes=64, topology=wrong)
    with pytest.raises(SystemExit):
        simulate_command(["allreduce", "-a", "ring", "-n", "16", "--topology", wrong])
    assert why in capsys.readouterr().err


def test_wrong_combinations():
    same = {"algorithm": "ring", "ranks": 4, "nbytes": 64}
    with pytest.raises(TypeError, match="topology=4 is not a text"):
        pycoll.simulate("allreduce", **same, topology=4)
    with pytest.raises(ValueError, match="replaces hosts_per_switch=2; give one of them"):
        pycoll.simulate("allreduce", **same, topology="torus:4", network=Network(hosts_per_switch=2))
    with pytest.raises(ValueError, match="a rank is on -1"):
        pycoll.simulate("allreduce", **same, topology="torus:4", hosts=[-1, 0, 1, 2])


def test_the_command_uses_all_hosts(capsys, tmp_path, monkeypatch):
    simulate_command(["allreduce", "-a", "ring", "-b", "4K", "--topology", "rails:2x3"])
    ring = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("ring"))
    assert ring[2] == "10"  # messages of each of six ranks
    monkeypatch.chdir(tmp_path)
    simulate_command(["allreduce", "-a", "ring,swing", "-b", "4K", "--topology", "torus:4x2", "--plot"])
    assert (tmp_path / "simulated.png").stat().st_size > 1000
