"""The choice of an algorithm."""

from dataclasses import replace

import pytest

from pycoll.base.domains import UNKNOWN
from pycoll.schedule.registry import find
from pycoll.selection.choices import Choices
from pycoll.selection.select import CommFacts, SelectionKey, select
from pycoll.selection.tuning_file import Candidate, Point, Tuned


def test_neighbors():
    """Short blocks of one length run in slots, others in messages."""
    key, facts = SelectionKey("neighbor_alltoall", 64, native=True), CommFacts((0, 0, 0, 0))
    assert not select(None, key, facts, Choices(), None).slots
    assert select(None, key._replace(slots=True), facts, Choices(), None).slots
    for nbytes, slots, hosts in [(1 << 20, True, (0,) * 4), (64, False, (0, 0, 1, 1))]:
        given = key._replace(nbytes=nbytes, slots=slots)
        assert select(None, given, CommFacts(hosts, native=True), Choices(), None) == (
            "direct",
            "by the rules",
            None,
            False,
        )
    assert select("native", key, facts, Choices(), None).algorithm == "native"


DOMAINS = ((0, 0, 0), (0, 1, 4), (1, 2, 8), (1, 3, 12))  # socket, numa, cache


def hosts_for(levels, hosts, domains=()):
    facts = CommFacts(hosts, domains=domains)
    return facts.hosts_for(find("allreduce", f"hierarchical:levels={levels}"))


def test_algorithms_get_the_domains_that_their_names_say():
    facts = CommFacts((0, 0, 1, 1), domains=DOMAINS)
    assert facts.hosts_for(find("allreduce", "ring")) is None
    assert facts.hosts_for(find("allreduce", "two_level")) == (0, 0, 1, 1)
    assert hosts_for("node", (0, 0, 1, 1), DOMAINS) == ((0,), (0,), (1,), (1,))
    assert hosts_for("node+socket", (0, 0, 0, 0), DOMAINS) == ((0, 0), (0, 0), (0, 1), (0, 1))
    assert hosts_for("socket+numa", (0, 0, 0, 0), DOMAINS) == ((0, 0), (0, 1), (1, 2), (1, 3))
    assert hosts_for("numa", (0, 0, 1, 1), DOMAINS[:2] * 2) == ((0,), (1,), (2,), (3,)), (
        "hosts number their own domains"
    )


def test_hosts_whose_domains_are_not_known_are_one_domain():
    assert hosts_for("node+numa", (0, 0, 1, 1)) == ((0, 0), (0, 0), (1, 1), (1, 1))
    partly = ((0, UNKNOWN, 0), (0, 1, 4), *DOMAINS[2:])
    assert hosts_for("node+numa", (0, 0, 1, 1), partly) == ((0, 0), (0, 0), (1, 1), (1, 2))


def test_a_measured_algorithm_that_cannot_run_here(tmp_path):
    """Where a level splits a host unevenly, the rules choose, not a measurement from elsewhere."""
    times = {"hierarchical:levels=node+numa": 1e-6, "tree": 2e-6}
    points = {"bcast": [Point(64, {Candidate(name): seconds for name, seconds in times.items()})]}
    tuned = Tuned(tmp_path / "tuning.json", {}, points)
    key = SelectionKey("bcast", 64)
    facts = CommFacts((0, 0, 0, 0), domains=DOMAINS)
    assert select(None, key, facts, Choices(), tuned).algorithm == "hierarchical:levels=node+numa"
    uneven = replace(facts, domains=(DOMAINS[0],) * 3 + DOMAINS[3:])
    assert select(None, key, uneven, Choices(), tuned).reason.startswith("by the rules")


def test_a_level_that_splits_a_host_unevenly():
    uneven = (DOMAINS[0], DOMAINS[0], DOMAINS[0], DOMAINS[2])
    with pytest.raises(ValueError, match="the level numa splits host 0 unevenly, into domains of 3 and 1 ranks"):
        hosts_for("node+numa", (0, 0, 0, 0), uneven)
    assert "hierarchical:levels=node+numa" not in CommFacts((0, 0, 0, 0), domains=uneven).algorithms_for("bcast")
    assert "hierarchical:levels=node+numa" in CommFacts((0, 0, 0, 0), domains=DOMAINS).algorithms_for("bcast")
    assert hosts_for("node", (0, 0, 0, 1), uneven) == ((0,), (0,), (0,), (1,)), "hosts may differ"
