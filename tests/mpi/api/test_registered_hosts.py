"""Registered buffers of ranks on several hosts, which are simulated: results, messages, and agreement inside a host."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, ParameterServer
from pycoll.runtime import channel, dispatch
from pycoll.runtime.attach import attach
from pycoll.runtime.open_core import why_unusable
from pycoll.runtime.registered import Registered
from tests.mpi.native import RANK, SIZE, WORLD
from tests.quick import quick

from .test_registered import COUNT, IN_PLACE, PAIRS, ROOT, Call, check_changing_buffers

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE < 3, reason="no two ranks are on one of two hosts"),
    pytest.mark.skipif(bool(why_unusable()), reason=why_unusable()),
]

HOSTS = tuple(rank % 2 for rank in range(SIZE))
ALONE = HOSTS.count(HOSTS[RANK]) == 1
EVEN = SIZE % 2 == 0
TWO_LEVEL = [name for name, algorithm in PAIRS if algorithm == "two_level"]


def placed(hosts):
    """Return a communicator whose ranks pycoll takes to be on these hosts."""
    comm = WORLD.Dup()
    one = attach(comm)
    one.facts = replace(one.facts, hosts=hosts)
    one.registered = Registered(one.comm, one.facts.on_host_of(RANK))
    return comm


@pytest.fixture(scope="module")
def comm():
    """Return a communicator of ranks on two hosts."""
    one = placed(HOSTS)
    yield one
    one.Free()


@pytest.fixture(scope="module")
def memory(comm):
    """Return registered memory for two buffers."""
    return [pycoll.zeros(SIZE * COUNT + 64, np.float32, comm=comm) for _ in range(2)]


def sent_by(call, memory, form="blocking"):
    """Run a call twice; return the bytes that it sends, and the result."""
    for _ in range(2):
        with pycoll.traffic() as sent:
            result = call.run(memory, form)
    return sent.nbytes, result


@pytest.mark.parametrize("form", quick("blocking", "nonblocking", "persistent"))
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive, algorithm", [pair for pair in PAIRS if pair[0] != "reduce"])
def test_the_same_bits_with_fewer_bytes(comm, memory, primitive, algorithm, in_place, form):
    """Check that results are the same as with messages, no rank sends more, and with two levels each sends less."""
    call = Call(comm, primitive, algorithm, in_place=in_place)
    before, expected = sent_by(call, [np.zeros(SIZE * COUNT + 64, np.float32) for _ in range(2)], form)
    now, result = sent_by(call, memory, form)
    np.testing.assert_array_equal(result, expected)
    assert now <= before + 1000  # the positions of buffers, which roots and leaves of a tree send too
    # with more than three ranks on a host, some forward blocks of a scatter or gather from scratch, as messages
    if algorithm == "two_level" and EVEN and primitive not in ("bcast", "scatter", "gather"):
        assert now < before


@pytest.mark.skipif(not EVEN, reason="hosts have different numbers of ranks")
@pytest.mark.parametrize("primitive, blocks", [("allgather", 1), ("allreduce", 2 / SIZE), ("reduce_scatter", 1)])
def test_data_is_sent_only_between_hosts(comm, memory, primitive, blocks):
    count = COUNT // (64 * SIZE) * 64 * SIZE  # so that all parts of the vector are equal
    sent, _ = sent_by(Call(comm, primitive, "two_level", count=count), memory)
    assert 0 <= sent - 4 * count * blocks < 1000  # the rest are the positions of buffers


@pytest.mark.parametrize("primitive", ["scatter", "gather"])
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
def test_ranks_on_the_host_of_the_root_read(comm, memory, primitive, in_place):
    """Check that the root sends its blocks, and gets those of others, without messages on its host."""
    call = Call(comm, primitive, "naive", in_place=in_place)
    sent, result = sent_by(call, memory)
    np.testing.assert_array_equal(result, call.reference())
    away = (SIZE - HOSTS.count(HOSTS[ROOT])) if primitive == "scatter" else 0
    if RANK == ROOT or HOSTS[RANK] == HOSTS[ROOT]:
        assert 0 <= sent - 4 * COUNT * away * (RANK == ROOT) < 1000


@pytest.mark.parametrize("last", [False, True])
def test_ordinary_memory_on_one_rank(comm, memory, last):
    """Check that the ranks of its host use messages, and the others do not."""
    alone = SIZE - 1 if last else 0
    ordinary = [np.zeros(SIZE * COUNT + 64, np.float32) for _ in range(2)]
    for turn in range(4):
        call = Call(comm, "allreduce", "two_level", seed=turn)
        mine = ordinary if turn % 2 and alone == RANK else memory
        np.testing.assert_array_equal(call.run(mine), call.reference())


def test_other_slices_in_each_call(comm, memory):
    for start in range(5):
        call = Call(comm, "allreduce", "two_level", seed=start, starts=(start + RANK, 2 * start))
        np.testing.assert_array_equal(call.run(memory), call.reference())


@pytest.mark.parametrize("primitive", ["bcast", "scatter", "gather", *IN_PLACE])
def test_one_rank_changes_its_buffers(comm, memory, primitive):
    check_changing_buffers(comm, memory, primitive, "two_level" if primitive in TWO_LEVEL else None)


@pytest.mark.skipif(not EVEN, reason="hosts have different numbers of ranks")
@pytest.mark.parametrize("primitive", TWO_LEVEL)
def test_calls_in_a_loop_are_checked_and_bound_once(comm, memory, monkeypatch, primitive):
    call = Call(comm, primitive, "two_level")
    expected = call.reference()
    for _ in range(2):
        call.run(memory)
    for module, name in [(dispatch, "prepare"), (channel, "bind")]:
        monkeypatch.setattr(module, name, None)
    for _ in range(2):
        np.testing.assert_array_equal(call.run(memory), expected)


def test_several_in_flight(comm):
    arrays = [pycoll.zeros(30_000, comm=comm) for _ in range(4)]
    for number, array in enumerate(arrays):
        array[:] = RANK + number
    requests = [pycoll.iallreduce(MPI.IN_PLACE, array, comm=comm) for array in arrays]
    for number, (request, array) in enumerate(zip(requests, arrays)):
        request.wait()
        assert (array == sum(range(SIZE)) + SIZE * number).all()
    for array in arrays:
        pycoll.free(array, comm=comm)


def test_means(comm):
    values = pycoll.empty(50_000, np.float32, comm=comm)
    values[:] = RANK
    pycoll.allreduce(MPI.IN_PLACE, values, op="avg", comm=comm)
    assert (values == np.float32((SIZE - 1) / 2)).all()
    pycoll.free(values, comm=comm)


def test_comm_methods(comm, memory):
    drop_in, call = pycoll.Comm(comm), Call(comm, "allreduce", None, count=40_000 if SIZE * COUNT > 40_000 else COUNT)
    send, recv = call.place(memory)
    drop_in.Allreduce([send, MPI.FLOAT], [recv, MPI.FLOAT], algorithm="two_level")
    np.testing.assert_allclose(recv, sum(call.inputs), rtol=1e-5)


def test_nothing_is_left():
    one = placed(HOSTS)
    for _ in range(3):
        arrays = [pycoll.empty(1 << 20, comm=one) for _ in range(3)]
        for array in arrays:
            pycoll.free(array, comm=one)
        assert attach(one).registered.live == 0 and attach(one).registered.nbytes == 0
    assert attach(one).registered.areas == {} or not ALONE
    one.Free()


@pytest.mark.skipif(not EVEN, reason="hosts have different numbers of ranks")
def test_explain(comm, memory):
    assert str(pycoll.explain("allreduce", nbytes=1 << 20, comm=comm)).count("for the data inside a host") == 1
    assert not pycoll.explain("reduce", nbytes=1 << 20, comm=comm).registered


@pytest.mark.parametrize("algorithm", ["two_level", "ring", "bruck"])
@pytest.mark.parametrize("gap", [0, 1], ids=["the same places", "other places"])
def test_places_that_differ_between_ranks(comm, algorithm, gap):
    """Check an all-gather in which each rank has its own places for the blocks."""
    counts = [6000 + rank for rank in range(SIZE)]
    displs = np.cumsum([0, *counts[:-1]]) + gap * RANK * np.arange(SIZE)
    send, recv = pycoll.empty(counts[RANK], comm=comm), pycoll.zeros(SIZE * (7000 + SIZE), comm=comm)
    send[:] = RANK + np.arange(counts[RANK])
    for _ in range(2):
        pycoll.allgatherv(send, [recv, (counts, displs.tolist())], algorithm=algorithm, comm=comm)
        for rank, (count, displ) in enumerate(zip(counts, displs)):
            np.testing.assert_array_equal(recv[displ : displ + count], rank + np.arange(count))
        recv[:] = 0
    pycoll.free(send, comm=comm)
    pycoll.free(recv, comm=comm)


@pytest.mark.parametrize("algorithm", ["two_level", "ring", "naive"])
def test_blocks_of_different_lengths_in_place(comm, algorithm):
    counts = [6000 + rank for rank in range(SIZE)]
    recv, first = pycoll.zeros(sum(counts), comm=comm), sum(counts[:RANK])
    for turn in range(2):
        recv[:] = 0
        recv[first : first + counts[RANK]] = RANK + turn
        pycoll.allgatherv(MPI.IN_PLACE, [recv, counts], algorithm=algorithm, comm=comm)
        np.testing.assert_array_equal(recv, np.repeat(np.arange(SIZE) + turn, counts))
    pycoll.free(recv, comm=comm)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_parameter_server_lends_vectors_inside_a_host_only(comm, servers):
    parameters = {"a": np.zeros(9001, np.float32)}
    with ParameterServer(parameters, optimizer=partial(SGD, lr=1.0), comm=comm, servers=servers, colocated=True) as ps:
        for step in range(3):
            ps.step({"a": np.full(9001, RANK + step, np.float32)})
        ps.finish()
    np.testing.assert_allclose(parameters["a"], -sum((SIZE - 1) / 2 + step for step in range(3)), rtol=1e-5)
