"""Messages on a graph take links to neighbors, or the fastest routes, each link with its own latency and bandwidth."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base.links import Times, write
from pycoll.schedule.moves import Recv, Send
from pycoll.simulate import Link, Network
from pycoll.simulate.__main__ import main as simulate_command
from pycoll.simulate.graph import ROUTED, Graph
from pycoll.simulate.run import Cluster, Ranks
from pycoll.simulate.topologies import RankHosts
from pycoll.simulate.topology_names import parse
from tests.drawn import examples

NETWORK = Network(Link(5.0, 5.0), gamma=0.0)  # whose latency and bandwidth the links replace
TRIANGLE = {(0, 1): Times(1e-6, 1e-9), (1, 2): Times(2e-6, 3e-9), (2, 0): Times(1e-6, 1e-9)}


@st.composite
def connected(draw, most=8):
    """Return links in both directions between some hosts: a random tree, and further links."""
    size = draw(st.integers(2, most))
    pairs = {(draw(st.integers(0, host - 1)), host) for host in range(1, size)}
    pairs |= {pair for pair in itertools.combinations(range(size), 2) if draw(st.booleans())}
    times = st.builds(Times, st.sampled_from([0.0, 1e-6, 1e-5]), st.sampled_from([1e-11, 1e-10, 3e-10]))
    return {way: draw(times) for pair in sorted(pairs) for way in (pair, pair[::-1])}


@examples(50)
@given(connected())
def test_routes_are_links_to_neighbors_or_the_fastest(links):
    """They are compared with all paths, which the method of Floyd and Warshall finds."""
    graph = Graph(links)
    hosts = range(graph.size)
    seconds = {pair: alpha + ROUTED * beta for pair, (alpha, beta) in links.items()} | {(h, h): 0.0 for h in hosts}
    for middle, here, there in itertools.product(hosts, repeat=3):
        around = seconds.get((here, middle), 1e9) + seconds.get((middle, there), 1e9)
        seconds[here, there] = min(seconds.get((here, there), 1e9), around)
    for here, there in itertools.permutations(hosts, 2):
        hops = [*graph.route(here, there, RankHosts(NETWORK, hosts))]
        if (here, there) in links:
            assert [hop.name for hop in hops] == [f"host {here} to host {there}"]
        else:
            assert sum(hop.alpha + ROUTED * hop.beta for hop in hops) == pytest.approx(seconds[here, there])
        assert graph.latency(hops, NETWORK) == sum(hop.alpha for hop in hops)


def test_a_message_takes_the_times_of_its_links():
    rounds = [iter([(Send(2, [0]),)]), iter(()), iter([(Recv(0, [0]),)])]
    run = Ranks(rounds, Cluster(NETWORK, 3, None, Graph(TRIANGLE)), lambda blocks: 1000, 1 << 40)
    run.run([0.0] * 3)
    assert run.ends[2] == pytest.approx(3e-6 + 1000 * 3e-9)
    assert {port.name for port in run.cluster.ports.values()} == {"host 0 to host 1", "host 1 to host 2"}


def test_a_file_is_a_topology(tmp_path, capsys):
    path = str(tmp_path / "triangle.json")
    write(path, TRIANGLE)
    assert parse(path) == Graph(TRIANGLE)
    simulate_command(["allreduce", "-a", "ring", "-b", "4K", "--topology", path])
    ring = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("ring"))
    assert ring[2] == "4"  # messages of each of three ranks


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([(0, 1), (1, 0), (2, 3), (3, 2)], "there is no route from host 0 to host 2"),
        ([(0, 1), (1, 0), (2, 0)], "there is no route from host 0 to host 2"),
        ([(0, 1), (1, 0), (0, 2)], "there is no route to host 0 from host 2"),
        ([(0, 1), (1, 0), (0, 3), (3, 0)], "host 2 has no link"),
    ],
)
def test_graphs_with_unreachable_hosts(pairs, why, tmp_path, capsys):
    path = str(tmp_path / "links.json")
    write(path, dict.fromkeys(pairs, Times(0.0, 1.0)))
    with pytest.raises(ValueError, match=why):
        pycoll.simulate("allreduce", algorithm="ring", ranks=2, nbytes=8, topology=path)
    with pytest.raises(SystemExit):
        simulate_command(["allreduce", "--topology", path])
    assert why in capsys.readouterr().err


def test_missing_files(tmp_path, capsys):
    with pytest.raises(SystemExit):
        simulate_command(["allreduce", "--topology", str(tmp_path / "absent.json")])
    assert "absent.json: no such file" in capsys.readouterr().err
    (tmp_path / "empty.json").write_text(json.dumps({}))
    with pytest.raises(SystemExit):
        simulate_command(["allreduce", "--topology", str(tmp_path / "empty.json")])
    assert 'not an object with a list "links"' in capsys.readouterr().err
