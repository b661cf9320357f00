"""Simulated placement of ranks on several hosts: the algorithms that run, and their results."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base import hooks
from pycoll.base.settings import configure
from pycoll.runtime.attach import attach
from pycoll.runtime.tuned import fitting
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

from .test_collectives import check_movement, check_reduction

pytestmark = pytest.mark.mpi
TWO_LEVEL = [
    (primitive, algorithm)
    for primitive in PRIMITIVES
    for algorithm in algorithms_of(primitive)
    if algorithm.startswith("two_level") and not PRIMITIVES[primitive].varies
]


def place(channel, hosts):
    """Make pycoll treat the ranks as being on these hosts."""
    channel.facts = replace(channel.facts, hosts=tuple(hosts))
    channel.tuned = fitting(channel.facts)


@pytest.fixture
def channel():
    """Yield the channel of COMM_WORLD; changes to its hosts are undone after the test."""
    found = attach()
    before = found.facts, found.tuned
    yield found
    found.facts, found.tuned = before
    hooks.begin_epoch()


def test_hosts_by_their_names(channel):
    names = WORLD.allgather(MPI.Get_processor_name())
    assert [channel.facts.hosts[i] == channel.facts.hosts[0] for i in range(SIZE)] == [
        name == names[0] for name in names
    ]
    child = pycoll.Comm(WORLD).Split(0, -RANK)
    assert attach(child).facts.hosts == channel.facts.hosts[::-1] or len(set(channel.facts.hosts)) > 1
    later, request = child.Idup()
    request.Wait()
    later.Barrier()
    assert attach(later).facts.hosts == attach(child).facts.hosts
    later.Free()
    child.Free()


@examples(60 if SIZE < 5 else 15)
@given(
    st.sampled_from(TWO_LEVEL),
    st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE),
    st.integers(0, 700),
    st.integers(16, 3000),
    st.integers(0, SIZE - 1),
    st.sampled_from(["int64", "float32"]),
)
def test_any_layout(together, channel, names, hosts, count, segment, root, dtype):
    together(check, channel, names, hosts, count, segment, root, dtype)


def check(channel, names, hosts, count, segment, root, dtype):
    primitive, algorithm = names
    place(channel, hosts)
    configure(segment=segment, pipeline=segment)
    try:
        if primitive == "barrier":
            pycoll.barrier(algorithm=algorithm)
        elif PRIMITIVES[primitive].reduces:
            check_reduction(primitive, algorithm, "sum", dtype, count, root)
        else:
            check_movement(primitive, algorithm, dtype, count, root)
    finally:
        configure(segment=None, pipeline=None)


def test_blocks_of_different_lengths(channel):
    place(channel, [rank % 2 for rank in range(SIZE)])
    counts = [3 * rank for rank in range(SIZE)]
    ours = pycoll.allgatherv(np.full(counts[RANK], RANK), [None, counts], algorithm="two_level")
    np.testing.assert_array_equal(ours, np.repeat(np.arange(SIZE), counts))


def test_long_vectors_between_hosts_go_by_two_levels(channel, monkeypatch):
    """Between hosts, long vectors use the algorithm two_level, in shorter messages, as suits a network."""
    if SIZE == 1:
        pytest.skip("one rank is on one host")
    send = np.ones(300_000)
    with pycoll.traffic() as inside:
        pycoll.allreduce(send, algorithm="two_level")
    place(channel, [rank % 2 for rank in range(SIZE)])
    with pycoll.traffic() as chosen:
        np.testing.assert_array_equal(pycoll.allreduce(send), send * SIZE)
    with pycoll.traffic() as named:
        pycoll.allreduce(send, algorithm="two_level")
    assert (chosen.messages, chosen.nbytes) == (named.messages, named.nbytes)
    assert chosen.messages > 4 * inside.messages
