"""The simulation agrees with the counts of the proof, with the formulas, and with times computed by hand."""

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.schedule.costs import CostModel as Formula
from pycoll.schedule.costs import documented, evaluate
from pycoll.schedule.moves import Combine, Copy, Recv, Reduce, Send
from pycoll.schedule.proof import prove
from pycoll.schedule.registry import find
from pycoll.simulate import Link, Network
from pycoll.simulate.__main__ import main as simulate_command
from pycoll.simulate.network import changed, read, write
from pycoll.simulate.run import Cluster, Ranks, sizes
from tests.pure.schedule.test_proof import ALGORITHMS

ALPHA, BETA, GAMMA = 1e-6, 1e-9, 1e-10
Z = 1 << 20


def flat(alpha=ALPHA, beta=BETA, gamma=GAMMA, **more):
    link = Link(alpha, beta, **more)
    return Network(link, link, gamma)


def simulated(algorithm, ranks, nbytes=Z, network=None, longest=1 << 40, **more):
    network = network or flat()
    name = algorithm.primitive.name
    return pycoll.simulate(
        name, algorithm=algorithm.name, ranks=ranks, nbytes=nbytes, network=network, longest=longest, **more
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize("hosts", [None, (0, 0, 1, 1, 2), (0, 1, 0, 1, 0, 1)])
def test_it_counts_what_the_proof_counts(algorithm, hosts):
    for ranks in (1, 2, 3, 5, 8) if hosts is None else (len(hosts),):
        for root in {0, ranks - 1} if algorithm.primitive.rooted else {0}:
            segments = 3 if algorithm.pipelined else 1
            nbytes = 1000 * ranks + 1
            together = sizes(algorithm, ranks, nbytes, segments, hosts)
            proven = prove(algorithm, ranks, root, segments, partial(of_one, together), hosts)
            outcome = simulated(algorithm, ranks, nbytes, root=root, segments=segments, hosts=hosts)
            assert outcome.messages.tolist() == proven.messages
            assert outcome.sent.tolist() == proven.sent
            assert outcome.received.tolist() == proven.received
            assert outcome.combined.tolist() == proven.combined
            out = sum(link.nbytes for name, link in outcome.links.items() if name.startswith("host") and "out" in name)
            place = hosts or range(ranks)
            assert out == sum(proven.crossing.values()) if len(set(place)) > 1 else not out
            assert (outcome.ends <= outcome.time).all() and (outcome.waiting >= -1e-12).all()


def of_one(together, block):
    return together([block])


def at_once(algorithm):
    """Return whether a rank sends or receives several messages in one round."""
    rounds = [moves for rank in range(8) for moves in algorithm.schedule(rank, 8, segments=8)]
    sent = [[isinstance(move, Send) for move in moves if not isinstance(move, Copy | Combine)] for moves in rounds]
    return any(max(sends.count(True), sends.count(False)) > 1 for sends in sent)


FIXED = [each for each in ALGORITHMS if not each.primitive.varies]
# Several messages pass a port at once, so the simulation and the formula count their times differently.
DIFFERENT = {"barrier.naive", *(str(each) for each in FIXED if at_once(each))}


@pytest.mark.parametrize("algorithm", [each for each in FIXED if str(each) not in DIFFERENT], ids=str)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_takes_as_long_as_the_formula_says(algorithm, ranks):
    outcome = simulated(algorithm, ranks, segments=8).time
    said = evaluate(documented(algorithm)["Cost"], ranks, Z, 8, Formula(ALPHA, BETA, GAMMA), k=algorithm.k)
    assert outcome == pytest.approx(said, rel=1e-6)


@pytest.mark.parametrize("ranks", [4, 8])
def test_what_the_formulas_count_otherwise(ranks):
    tree = find("allreduce", "double_tree")
    bound = evaluate(documented(tree)["Cost"], ranks, Z, 8, Formula(ALPHA, BETA, GAMMA))
    assert 2 * Z * BETA < simulated(tree, ranks, segments=8).time <= bound
    assert simulated(find("barrier", "naive"), ranks, 0).time == pytest.approx(2 * ALPHA)  # all ranks send at once
    outcome = simulated(find("alltoall", "naive"), 8, 64, flat(1.5e-6, 8e-11, overhead=3e-7, buffer=1000))
    assert outcome.time == pytest.approx(14 * 3e-7)  # processor time for 7 sends and 7 receives


@pytest.mark.parametrize("buffer", [0, 1 << 30])
def test_the_order_of_moves_does_not_matter(buffer):
    network = flat(overhead=1e-6, buffer=buffer)
    moves = [Send(1, [0]), Reduce(1, [1])], [Send(0, [1]), Recv(0, [0])]
    ends = set()
    for order in ((0, 1), (1, 0)):
        rounds = [iter([tuple(of_rank[place] for place in order)]) for of_rank in moves]
        run = Ranks(rounds, Cluster(network, 2, None), lambda blocks: 1_000_000, 1 << 40)
        run.run([0.0, 1e-4])
        ends.add(tuple(run.ends))
    assert len(ends) == 1
    one_way = 1e-3 + ALPHA + 2e-6  # including the overhead of both processors
    first = 1e-4 if buffer == 0 else 0.0
    assert ends.pop() == pytest.approx((1e-4 + one_way + 1e-4, first + one_way))


def test_segments_are_combined_while_others_come_but_not_before():
    reduce = find("reduce", "naive")
    late = simulated(reduce, 2, 1_000_000, Network(Link(1e-2, 0.0, buffer=1 << 40), gamma=1e-9), longest=100_000)
    assert late.time == pytest.approx(1e-2 + 1e-3)  # all ten segments arrive at once
    slow = simulated(reduce, 2, 1_000_000, flat(0.0, 1e-9, 2e-9), longest=100_000)
    assert slow.time == pytest.approx(1e-4 + 2e-3)  # after the first segment arrives, combining takes longest
    quick = simulated(reduce, 2, 1_000_000, flat(0.0, 1e-9, 1e-10), longest=100_000)
    assert quick.time == pytest.approx(1e-3 + 1e-5)  # after the last segment arrives, only it is left to combine
    assert slow.busy[0] == pytest.approx(2e-3)


def test_pipelines_take_turns_with_the_processor():
    ring = find("bcast", "ring")
    outcome = simulated(ring, 4, 800_000, flat(0.0, 1e-9, overhead=1e-6), segments=8)
    assert outcome.time == pytest.approx((8 + 4 - 2) * (100_000 * 1e-9 + 2e-6))


def test_a_buffer_is_for_all_that_a_rank_sends_to_another():
    outcome = simulated(find("bcast", "ring"), 2, 800_000, flat(0.0, 1e-9, buffer=50_000), segments=16)
    assert outcome.ends.tolist() == pytest.approx([7.5e-4, 8e-4])


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    ranks=st.integers(1, 9),
    nbytes=st.integers(1, 10**6),
    per_host=st.integers(1, 3),
    factor=st.sampled_from([0.5, 2.0, 1024.0]),
)
def test_all_times_scale_together(algorithm, ranks, nbytes, per_host, factor):
    link = {"alpha": 3e-6, "beta": 1e-9, "overhead": 1e-6}
    inside = {"alpha": 1e-6, "beta": 2e-10, "overhead": 1e-7}
    more = {"buffer": 40_000, "frame": 16_000, "shaped": True}

    def network(k):
        between, within = (Link(**{name: k * value for name, value in each.items()}, **more) for each in (link, inside))
        return Network(between, within, k * 1e-10, hosts_per_switch=2, oversubscription=2.0)

    one, other = (
        simulated(algorithm, ranks, nbytes, network(k), 50_000, ranks_per_host=per_host, delays={0: k * 1e-5})
        for k in (1.0, factor)
    )
    assert other.time == pytest.approx(factor * one.time, rel=1e-9)
    assert other.links.keys() == one.links.keys()


def two_sends(network, **more):
    """Simulate a root that sends to two ranks, one after the other."""
    return simulated(find("bcast", "naive"), 3, 1_000_000, network, **more)


def test_without_buffers_a_send_ends_when_it_is_received():
    assert two_sends(flat()).ends.tolist() == pytest.approx([2.002e-3, 1.001e-3, 2.002e-3])


def test_what_is_left_behind_shares_the_link_with_what_comes_next():
    patient = flat(buffer=2_000_000)
    assert two_sends(patient).ends.tolist() == pytest.approx([0, 1.001e-3, 2.001e-3])
    fair = flat(buffer=2_000_000, frame=100_000)
    assert two_sends(fair).ends.tolist() == pytest.approx([0, 1.801e-3, 2.001e-3])
    half = flat(buffer=500_000, frame=100_000)
    assert two_sends(half, longest=100_000).ends.tolist() == pytest.approx([1.5e-3, 1.401e-3, 2.001e-3], abs=1.1e-4)


def test_a_long_message_and_a_short_one_share_a_link_evenly():
    """Check that a short message is complete when an equal amount of a long message has arrived."""
    wide = flat(buffer=8_000_000, frame=10_000)
    outcome = simulated(find("bcast", "scatter_allgather"), 4, 4_000_000, wide)
    # 2 MB go to rank 2.  Meanwhile, 1 MB of the scatter and 1 MB of the first all-gather round go to rank 1.
    halfway = 4e-3  # the link carries 1 GB/s
    assert outcome.ends[2] == pytest.approx(halfway + 4e-3, rel=0.03)


def test_a_shaper_lets_a_frame_pass_at_once():
    link = flat(buffer=1_000_000, frame=100_000, shaped=True)
    naive = find("bcast", "naive")
    assert simulated(naive, 2, 100_000, link).ends[1] == pytest.approx(ALPHA)
    assert simulated(naive, 2, 150_000, link).ends[1] == pytest.approx(ALPHA + 1e-4)


def test_ranks_of_a_host_share_its_link():
    ring = find("allreduce", "ring_whole")
    alone = simulated(ring, 4)
    beside = simulated(ring, 4, hosts=(0, 1, 0, 1))
    assert beside.time == pytest.approx(3 * (2 * Z * BETA + ALPHA) + 3 * Z * GAMMA, rel=1e-3)
    assert beside.links["host 0 out"].nbytes == 2 * alone.links["host 0 out"].nbytes
    inside = simulated(ring, 4, network=Network(Link(ALPHA, BETA), Link(0.0, BETA / 10), 0.0), hosts=(0, 0, 0, 0))
    assert inside.time == pytest.approx(3 * Z * BETA / 10)
    assert "host 0 out" not in inside.links


def test_domains_of_a_host_have_links():
    """Check the bytes that cross between domains, and that a slow link between them is what levels pay for."""
    slow = Network(Link(ALPHA, BETA), Link(0.0, BETA / 10), 0.0, across=Link(0.0, 10 * BETA))
    times = {}
    for name, ranks_that_cross in [("hierarchical", 0.5), ("ring", 15 / 16)]:
        result = simulated(find("allreduce", name), 16, network=slow, ranks_per_host=8, domains_per_host=2)
        assert result.links["domain 0.0 out"].nbytes == pytest.approx(2 * ranks_that_cross * Z, rel=0.01)
        times[name] = result.time
    assert times["hierarchical"] < 0.7 * times["ring"]
    setting = {"network": slow, "ranks_per_host": 8, "domains_per_host": 2}
    levels = [simulated(find("allreduce", f"hierarchical:levels={name}"), 16, **setting) for name in ("node", "numa")]
    assert levels[0].links["domain 0.0 out"].nbytes > levels[1].links["domain 0.0 out"].nbytes, "names matter"
    alone = simulated(find("allreduce", "ring"), 8, network=slow, hosts=(0,) * 8)
    assert not any("domain" in name for name in alone.links)


@pytest.mark.parametrize("oversubscription", [1.0, 4.0])
def test_an_oversubscribed_switch_holds_up_what_crosses_it(oversubscription):
    network = Network(Link(0.0, BETA), gamma=0.0, hosts_per_switch=4, oversubscription=oversubscription)
    outcome = simulated(find("allgather", "tree"), 8, network=network)
    inside = (1 + 2) * Z / 8 * BETA  # two rounds stay within a switch, and the third crosses between switches
    assert outcome.time == pytest.approx(inside + 4 * Z / 8 * BETA * oversubscription)
    assert outcome.links["switch 0 up"].nbytes == outcome.links["switch 1 down"].nbytes == 4 * 4 * Z / 8


def test_a_straggler_is_waited_for():
    ring = find("allreduce", "ring")
    prompt, late = simulated(ring, 8), simulated(ring, 8, delays={3: 5e-3})
    assert late.time == pytest.approx(prompt.time + 5e-3, rel=0.01)
    assert late.waiting.argmin() == 3 and np.delete(late.waiting, 3).min() > 4e-3


def test_thousands_of_ranks():
    outcome = simulated(find("allreduce", "recursive_doubling"), 4096)
    assert outcome.time == pytest.approx(12 * (ALPHA + Z * (BETA + GAMMA)))


def test_networks_are_written_and_read(tmp_path):
    network = changed(
        Network(), ["between.alpha=2e-5", "inside.frame=9000", "inside.shaped=true", "hosts_per_switch=4", "gamma=0"]
    )
    assert network.between.alpha == 2e-5 and network.inside.shaped and network.hosts_per_switch == 4
    write(network, tmp_path / "network.json", more="said")
    assert read(tmp_path / "network.json") == network


@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "Expecting property name"),
        ("\xff", "decode"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", 'its top level is not an object with a "network"'),
        ("{}", 'its top level is not an object with a "network"'),
        ('{"network": 5}', "network=5 is not an object"),
        ('{"network": {"delta": 1}}', "'delta' is not one of: between, inside, gamma, "),
        ('{"network": {"between": {"delta": 1}}}', "'between.delta' is not one of: between.alpha, between.beta, "),
        ('{"network": {"between": 5}}', "between=5 is not an object"),
        ('{"network": {"inside": {"alpha": "1"}}}', "alpha='1' is not a finite number"),
        ('{"network": {"gamma": NaN}}', "gamma=nan is not a finite number"),
    ],
)
def test_files_that_hold_no_network(tmp_path, text, why):
    path = tmp_path / "other.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=rf"other\.json is not a network: .*{re.escape(why)}"):
        read(path)


@pytest.mark.parametrize(
    "wrong, outcome",
    [
        *((each, re.escape(repr(each))) for each in ("delta=1", "between.delta=1", "middle.alpha=1", "between=3")),
        *((each, re.escape(repr(each))) for each in ("gamma", "gamma=fast", "between.frame=1.5", "inside.shaped=2")),
        ("between.beta=-1", "beta=-1.0"),
        ("gamma=inf", "gamma=inf"),
        ("gamma=nan", "gamma=nan"),
        ("between.shaped=1", "needs a frame"),
        ("oversubscription=4", "hosts_per_switch"),
        ("oversubscription=0.5", "less than 1"),
    ],
)
def test_wrong_parameters_are_named(wrong, outcome):
    with pytest.raises(ValueError, match=outcome):
        changed(Network(), [wrong])


@pytest.mark.parametrize(
    "wrong, outcome",
    [
        ({"network": {}}, r"network=\{\} is not a pycoll.simulate.Network"),
        ({"network": Link()}, "network=Link.* is not a pycoll.simulate.Network"),
        *(
            ({name: "4"}, f"{name}='4' is not an integer")
            for name in ("ranks", "nbytes", "root", "segments", "longest", "ranks_per_host", "domains_per_host")
        ),
        ({"nbytes": 1e6}, "nbytes=1000000.0 is not an integer"),
        ({"hosts": 4}, "hosts=4 is not a sequence of integers"),
        ({"hosts": "abcd"}, "hosts='abcd' is not a sequence of integers"),
        ({"hosts": (0, 1, None, 1)}, "hosts=.* is not a sequence of integers"),
        ({"delays": [1.0]}, "delays=.* is not a mapping from ranks to seconds"),
        ({"delays": {1: "late"}}, "delays=.* is not a mapping from ranks to seconds"),
        ({"delays": {"1": 1.0}}, "delays=.* is not a mapping from ranks to seconds"),
        ({"ranks": 0}, "ranks=0"),
        ({"ranks": 10**12}, "ranks=1000000000000: at most 16777216 ranks can be simulated"),
        ({"nbytes": -1}, "nbytes=-1"),
        ({"root": 4}, "root=4 is not one of 4"),
        ({"segments": 0}, "segments=0"),
        ({"hosts": (0, 1)}, "2 numbers for 4 ranks"),
        ({"ranks_per_host": 0}, "ranks_per_host=0"),
        ({"ranks_per_host": 4, "domains_per_host": 3}, "domains_per_host=3 does not divide the 4 ranks of a host"),
        ({"delays": {4: 1.0}}, r"delays=\{4: 1.0\}: there is no rank 4; the ranks are 0 to 3"),
        ({"delays": {1: -1.0}}, "rank 1 cannot start -1.0 s late"),
        ({"delays": {1: float("inf")}}, "rank 1 cannot start inf s late"),
        ({"longest": 0}, "longest=0"),
        ({"algorithm": "rung"}, "rung"),
        ({"algorithm": "native"}, "no schedule"),
    ],
)
def test_wrong_arguments_are_named(wrong, outcome):
    given = {"algorithm": "ring", "ranks": 4, "nbytes": 8} | wrong
    with pytest.raises((TypeError, ValueError), match=outcome):
        pycoll.simulate("bcast", **given)


def test_integers_may_be_those_of_numpy():
    outcome = pycoll.simulate(
        "bcast", algorithm="ring", ranks=np.int64(4), nbytes=np.int32(8), hosts=np.arange(4), delays={np.int64(1): 1}
    )
    assert outcome.time > 1


@pytest.mark.parametrize("name", ["native", "rung"])
def test_algorithms_that_cannot_be_simulated_are_not_offered(name):
    with pytest.raises(ValueError, match=f"algorithm={name!r} .*: naive, tree, ring") as caught:
        pycoll.simulate("bcast", algorithm=name, ranks=4, nbytes=8)
    assert "native" not in str(caught.value).rpartition(":")[2]


@pytest.mark.parametrize("wrong", [{"between": None}, {"inside": {"alpha": 1.0}}, {"between": Network()}])
def test_links_of_a_wrong_type_are_named(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(TypeError, match=re.escape(f"{name}={value!r} is not a pycoll.simulate.Link")):
        Network(**wrong)


@pytest.mark.parametrize(
    "wrong, why",
    [
        (["--set", "gama=1"], "'gama=1': 'gama' is not one of: gamma, "),
        (["--set", "between.apha=1"], "'between.apha' is not one of: gamma, "),
        (["-a", "native"], "algorithm='native' has no schedule"),
        (["-a", "ring,rung"], "algorithm='rung' is not one of the algorithms of bcast: naive, "),
    ],
)
def test_wrong_command_lines(wrong, why, capsys):
    with pytest.raises(SystemExit):
        simulate_command(["bcast", *wrong])
    error = capsys.readouterr().err
    assert why in error and error.count("\n") == 1 and "native," not in error
    assert "--set" not in wrong or all(name in error for name in ("between.alpha", "inside.frame", "hosts_per_switch"))


def test_the_module_can_be_called_whichever_way_it_was_imported():
    import pycoll.simulate

    assert pycoll.simulate("barrier", algorithm="tree", ranks=2, nbytes=0).time > 0
    assert "simulate" in pycoll.__all__
