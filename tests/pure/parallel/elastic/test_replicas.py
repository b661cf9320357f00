"""Which rank has the copies of which other rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpi4py")

from pycoll.parallel.elastic.replicas import neighbors


def test_the_next_rank_of_one_host():
    assert neighbors([0, 1, 2, 3], [0] * 4) == {0: 1, 1: 2, 2: 3, 3: 0}
    assert neighbors([1, 3], [0] * 4) == {1: 3, 3: 1}


def test_a_single_owner_has_the_next_rank():
    assert neighbors([3], [0] * 4) == {3: 0}
    assert neighbors([0], [0]) == {0: 0}
    assert neighbors([], [0]) == {}


def test_ranks_of_a_host_that_dies_are_on_others():
    assert neighbors(range(4), [0, 0, 1, 1]) == {0: 2, 2: 1, 1: 3, 3: 0}


@given(st.integers(1, 4), st.integers(2, 4))
def test_all_neighbors_are_on_other_hosts_if_hosts_have_as_many_ranks(ranks, count):
    hosts = [host for host in range(count) for _ in range(ranks)]
    assert all(hosts[owner] != hosts[to] for owner, to in neighbors(range(len(hosts)), hosts).items())


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.data())
def test_each_owner_has_the_copies_of_another_one(hosts, data):
    owners = sorted(data.draw(st.sets(st.integers(0, len(hosts) - 1), min_size=2)))
    found = neighbors(owners, hosts)
    assert sorted(found) == sorted(found.values()) == owners
    assert all(owner != to for owner, to in found.items())
