"""The eager limit inside a host."""

import time

import numpy as np
import pytest
from mpi4py import MPI

from pycoll.base import settings
from pycoll.runtime import eager
from pycoll.runtime.attach import _eager, attach
from pycoll.runtime.eager import eager_limit
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(not eager_limit(), reason="this MPI does not report the length")]

GO, DATA = 1, 2


def completes_without_receiver(nbytes):
    """Whether a send to the next rank completes before that rank posts its receive."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sent, received = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    WORLD.Barrier()
    request = WORLD.Isend(sent, right, DATA)
    end = time.monotonic() + 0.5  # MPI may have to wait for room that earlier messages took
    while not (done := request.Test()) and time.monotonic() < end:
        pass
    WORLD.Sendrecv(np.empty(0), right, GO, np.empty(0), left, GO)
    WORLD.Recv(received, left, DATA)
    request.Wait()
    assert received.all()
    return done


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
def test_messages_of_this_length_are_eager_and_longer_ones_are_not():
    assert completes_without_receiver(eager_limit())
    assert not completes_without_receiver(eager_limit() + 2 * 128)


def test_reading_it_changes_no_thread_level():
    """Open MPI sets the level of the process to the one that its tool interface is initialized with."""
    before = MPI.Query_thread()
    eager.eager_limit.cache_clear()
    assert eager_limit() > 0
    assert MPI.Query_thread() == before


def test_unknown_variables_are_not_errors(monkeypatch):
    monkeypatch.setattr(eager, "_OPEN_MPI", "no_such_variable")
    monkeypatch.setattr(eager, "_MPICH", "no_such_variable")
    eager.eager_limit.cache_clear()
    try:
        assert eager_limit() == 0
    finally:
        eager.eager_limit.cache_clear()


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
@pytest.mark.parametrize("pieces", [True, False])
def test_all_ranks_know_the_shortest(monkeypatch, pieces):
    monkeypatch.setattr(settings, "PIECES", pieces)
    monkeypatch.setattr("pycoll.runtime.attach.eager_limit", lambda: 1000 + RANK)
    comm = WORLD.Dup()
    assert attach(comm).facts.eager == 1000 * pieces
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
def test_one_rank_that_does_not_know_it(monkeypatch):
    monkeypatch.setattr("pycoll.runtime.attach.eager_limit", lambda: 1000 * (RANK > 0))
    comm = WORLD.Dup()
    assert attach(comm).facts.eager == 0
    comm.Free()


@pytest.mark.parametrize("limits, expected", [([0, 50, 40], 40), ([70, 0, 40], 0), ([50], 0)])
def test_ranks_that_are_alone_on_their_host_do_not_count(limits, expected):
    """Open MPI reports no limit on such ranks."""
    hosts = [0, 1, 1][: len(limits)]
    assert _eager(hosts, limits) == expected
