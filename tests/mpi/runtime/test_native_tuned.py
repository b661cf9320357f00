"""With a tuning file, pycoll may call the native MPI collective instead, on all ranks or on none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pycoll
from pycoll.runtime.attach import attach
from pycoll.selection.tuning_file import SHARED_MEMORY, Candidate, Point, Tuned
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


@pytest.fixture
def comm():
    """Return a communicator for which native was the fastest, and the ring in segments of 64 bytes the second."""
    found = WORLD.Dup()
    seconds = {Candidate("native"): 1e-6, Candidate("ring", 64): 2e-6, Candidate("tree"): 9e-6}
    seconds[Candidate(SHARED_MEMORY)] = 9e-6
    points = [Point(8, seconds), Point(1 << 40, seconds)]
    channel = attach(found)
    channel.facts = replace(channel.facts, host_memory=True)  # even if CuPy is installed
    channel.tuned = Tuned(Path("made-up.json"), {}, {"allreduce": points, "allgather": points})
    yield found
    found.Free()


def chosen(comm, nbytes=1024, **given):
    one = pycoll.explain("allreduce", nbytes=nbytes, comm=comm, **given)
    return str(Candidate(one.algorithm, one.segment))


def messages(call):
    with pycoll.traffic() as sent:
        call()
    return sent.messages


def test_mpis_own_stands_in_where_it_does_the_same(comm):
    assert chosen(comm) == chosen(comm, dtype="i8", op="max") == chosen(comm, op="avg") == "native"
    assert "measured to be the fastest" in pycoll.explain("allreduce", nbytes=8, comm=comm).reason
    assert messages(lambda: pycoll.allreduce(np.ones(8), comm=comm)) == 0
    assert messages(lambda: pycoll.allgather(np.ones(8, "i2"), comm=comm)) == 0, "what is moved may be of any dtype"


@pytest.mark.parametrize("given", [{"dtype": "i2"}, {"dtype": "u1"}, {"op": "min"}, {"nbytes": 1 << 31}])
def test_but_not_elsewhere(comm, given):
    """Native is not chosen for saturating sums, NaN, or more bytes than an int can count."""
    assert chosen(comm, **given) == "ring/64"


def test_nor_where_a_rank_may_have_a_gpu(comm):
    channel = attach(comm)
    channel.facts = replace(channel.facts, host_memory=False)
    assert chosen(comm) == "ring/64"


def test_nor_for_nonblocking_and_persistent_calls(comm):
    send, recv = np.ones(64), np.empty(64)
    assert messages(lambda: pycoll.iallreduce(send, recv, comm=comm).wait()) == (
        0 if SIZE == 1 else 2 * (SIZE - 1) * _cut()
    )
    assert (recv == SIZE).all()


def _cut():
    """Return the number of messages of at most 64 bytes in a step of the ring: a share of 64 doubles."""
    return -(-(64 // SIZE) * 8 // 64) if 64 % SIZE == 0 else pytest.skip("shares differ")


@pytest.mark.parametrize("others", [0, RANK])
def test_after_a_nonblocking_one_all_ranks_change_together(comm, others):
    """Ranks that have cached a call for these very arrays change as well."""
    x, y = np.ones(50), np.empty(50)
    for _ in range(3):
        pycoll.allreduce(x, y, comm=comm)
    pycoll.ibarrier(comm=comm).Wait()
    for step in range(20):
        request = pycoll.ibcast(np.ones(3), comm=comm)
        pycoll.allreduce(x.copy() if others == step % SIZE else x, y, comm=comm)
        request.Wait()
        assert (y == SIZE).all()
    assert chosen(comm) == "ring/64"


def test_persistent_ones_of_mpis_match_by_the_order_in_which_they_were_made():
    pycoll.attach(WORLD)
    recvs = [np.empty(1), np.empty(1)]
    pair = [pycoll.allreduce_init(np.full(1, 10.0**i), recvs[i], algorithm="native") for i in range(2)]
    for request in pair[:: 1 if RANK % 2 else -1]:
        request.Start()
    for request in pair:
        request.Wait()
        request.Free()
    assert [recv[0] for recv in recvs] == [SIZE, 10 * SIZE]
