"""The compiled simulation gives the times and counts of the one in Python, to the last bit."""

import random
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base.links import Times
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import find
from pycoll.simulate import Link, Network
from pycoll.simulate.graph import Graph
from pycoll.simulate.run import Cluster, Ranks, sizes
from pycoll.simulate.topologies import Rails
from pycoll.simulate.topology_names import parse
from tests.pure.schedule.test_proof import ALGORITHMS

if not [*Path(pycoll.__file__).parent.glob("core/slots.*.so")]:
    pytest.skip("nothing was compiled", allow_module_level=True)
from pycoll.simulate import compiled

LINKS = [
    Link(1.5e-6, 8e-11, 3e-7),
    Link(1e-6, 1e-9, 1e-7, buffer=3000),
    Link(1e-6, 1e-9, 1e-7, buffer=3000, frame=700),
    Link(2e-6, 1e-9, 1e-7, buffer=100_000, frame=4000, shaped=True),
]
AHEAD = [(host, (host + step) % 9) for host in range(9) for step in (1, 3, 7)]
GRAPH = Graph({(here, there): Times(1e-6 * here, 1e-10 * (there + 1)) for here, there in AHEAD})
TOPOLOGIES = None, *map(parse, ("torus:3x3", "fat-tree:3x3:2", "dragonfly:3x2x2", "rails:5x2")), GRAPH


def both(algorithm, ranks, nbytes, network=None, hosts=None, links=None, starts=None, segments=3, longest=1 << 40):
    """Return the outcomes of both simulations."""
    segments = segments if algorithm.pipelined else 1
    together = sizes(algorithm, ranks, nbytes, segments, hosts)
    outcomes = []
    for kind in (Ranks, compiled.CompiledRanks):
        rounds = [algorithm.schedule(rank, ranks, 0, segments, hosts) for rank in range(ranks)]
        cluster = Cluster(network or Network(), ranks, hosts, links)
        outcomes.append(kind(rounds, cluster, together, longest).run(starts or [0.0] * ranks))
    return outcomes


def same(one, other):
    """Return whether two outcomes are equal, also in the last bit."""
    return all(list(mine) == list(others) for mine, others in zip(one[:-1], other[:-1])) and one[-1] == other[-1]


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    ranks=st.integers(1, 9),
    nbytes=st.one_of(st.integers(0, 100), st.integers(1, 10**6)),
    between=st.sampled_from(LINKS),
    inside=st.sampled_from(LINKS),
    hop=st.sampled_from([0.0, 1e-7]),
    per_host=st.integers(1, 3),
    topology=st.sampled_from(TOPOLOGIES),
    longest=st.sampled_from([10_000, 1 << 40]),
    delays=st.lists(st.floats(0, 1e-4), min_size=9, max_size=9),
)
def test_of_each_rank(algorithm, ranks, nbytes, between, inside, hop, per_host, topology, longest, delays):
    network = Network(between, inside, hop=hop)
    hosts = None if per_host == 1 else tuple(rank // per_host for rank in range(ranks))
    if isinstance(topology, Rails):
        hosts = tuple(rank // 2 for rank in range(ranks))
    one, other = both(algorithm, ranks, nbytes, network, hosts, topology, delays[:ranks], longest=longest)
    assert same(one, other)


SYMMETRIC = [algorithm for algorithm in ALGORITHMS if algorithm.symmetry]


@given(
    algorithm=st.sampled_from(SYMMETRIC),
    ranks=st.integers(1, 17),
    nbytes=st.one_of(st.integers(0, 100), st.integers(1, 10**6)),
    delays=st.lists(st.floats(0, 1e-4), min_size=17, max_size=17),
)
def test_of_all_ranks_at_once(algorithm, ranks, nbytes, delays):
    together = sizes(algorithm, ranks, nbytes, 1, None)
    rounds = [algorithm.schedule(rank, ranks) for rank in range(ranks)]
    one = Ranks(rounds, Cluster(Network(), ranks, None), together, 1 << 40).run(delays[:ranks])
    if (rounds := compiled.template(algorithm, ranks, nbytes)) is None:
        assert not algorithm.symmetry(ranks)
        return
    other = compiled.CompiledRanks(rounds, Cluster(Network(), ranks, None), together, 1 << 40)
    assert same(one, other.run(delays[:ranks]))


@pytest.mark.parametrize("sockets", [2, 3])
def test_domains_of_hosts(sockets):
    hosts = tuple((rank // 6, rank % 6 * sockets // 6) for rank in range(12))
    one, other = both(find("allreduce", "ring"), 12, 10**6, hosts=hosts)
    assert same(one, other) and any(name.startswith("domain") for name in other.traffic)


def test_hosts_with_any_numbers():
    one, other = both(find("allgather", "bruck"), 5, 10**5, hosts=(7, -2, 7, 100, -2))
    assert same(one, other) and "host -2 out" in other.traffic


def test_messages_of_all_kinds_through_the_same_ports():
    """Some have no bytes, and some of those with shaped links are shorter than the turns of others."""
    draw = random.Random(1)
    for _ in range(100):
        plan = [(draw.randrange(4), draw.choice([0, 0, 8, 5500, 20_000, 100_000])) for _ in range(40)]
        link = draw.choice(LINKS)

        def rounds(plan=plan):
            sends = [
                [(Send(4, [nbytes] * (nbytes > 0)),) for rank, nbytes in plan if rank == each] for each in range(4)
            ]
            received = [tuple(Recv(rank, [nbytes] * (nbytes > 0)) for rank, nbytes in plan)]
            return [*map(iter, sends), iter(received)]

        one, other = (
            kind(rounds(), Cluster(Network(link, link), 5, None), sum, 1 << 40).run([0.0] * 5)
            for kind in (Ranks, compiled.CompiledRanks)
        )
        assert same(one, other)


def test_a_deadlock():
    cluster = Cluster(Network(), 2, None)
    rounds = [iter([(Recv(1, [0]),), (Send(1, [0]),)]), iter([(Recv(0, [0]),), (Send(0, [0]),)])]
    ends = compiled.CompiledRanks(rounds, cluster, lambda blocks: 8, 1 << 40).run([0.0, 0.0]).ends
    assert (ends != ends).all()  # NaN


@pytest.mark.parametrize("move", [Send(2, [0]), Recv(-1, [0])])
def test_a_rank_that_does_not_exist(move):
    run = compiled.CompiledRanks([iter([(move,)]), iter([])], Cluster(Network(), 2, None), lambda blocks: 8, 1 << 40)
    with pytest.raises(ValueError, match=r"a message of rank 0 is for or from rank (2|-1) of 2 ranks"):
        run.run([0.0, 0.0])


def test_an_error_in_a_schedule_is_raised():
    def rounds(rank):
        yield (Send(1 - rank, [0]), Recv(1 - rank, [0]))
        raise ZeroDivisionError("in a round")

    cluster = Cluster(Network(), 2, None)
    run = compiled.CompiledRanks([rounds(0), rounds(1)], cluster, lambda blocks: 8, 1 << 40)
    with pytest.raises(ZeroDivisionError, match="in a round"):
        run.run([0.0, 0.0])


def test_it_can_be_interrupted():
    def interrupt(number, frame):
        raise TimeoutError("the alarm")

    rounds = compiled.template(find("allreduce", "ring"), 4096, 1 << 26)
    run = compiled.CompiledRanks(rounds, Cluster(Network(), 4096, None), len, 1 << 40)
    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.5, 0.1)  # again, in case that it comes while garbage is collected
    try:
        with pytest.raises(TimeoutError, match="the alarm"):
            run.run([0.0] * 4096)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
def test_many_ranks():
    result = pycoll.simulate("allreduce", algorithm="recursive_doubling", ranks=1 << 16, nbytes=1024)
    assert (result.messages == 16).all() and len(result.links) == 2 << 16 and (result.ends == result.time).all()
