"""Nonblocking collectives keep operations, lists and buffers alive as long as needed, and then release them."""

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.runtime import progress
from pycoll.schedule.registry import algorithms_of
from tests.mpi.native import RANK, SIZE, WORLD

from .nonblocking import (
    LARGE,
    begin,
    case,
    concatenate,
)

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("primitive", ["reduce", "allreduce", "reduce_scatter", "scan", "exscan"])
def test_operations_of_the_users(primitive):
    """Operations that do not commute may be in flight together, and be freed once their request is complete."""
    requests = []
    for length in (1, 3, 100):
        op = MPI.Op.Create(concatenate, commute=False)
        wide = length * (SIZE if primitive == "reduce_scatter" else 1)
        requests.append((getattr(pycoll, f"i{primitive}")(np.full(wide, RANK + 1), op=op), op, length))
    last = {"scan": RANK + 1, "exscan": RANK}.get(primitive, SIZE)
    for request, op, length in requests[:: 1 if RANK % 2 else -1]:
        result = request.wait()
        op.Free()
        if result is not None:
            digits = int("".join(str(rank + 1) for rank in range(last)))
            np.testing.assert_array_equal(result, np.full(length, digits))


def test_lists_of_arrays_go_as_one():
    arrays = [np.full(n, n + RANK) for n in (1, 20, 3)]
    request, other = pycoll.iallreduce(arrays), pycoll.ibcast([np.full(2, RANK), np.full(3, RANK)], SIZE - 1)
    assert request.wait() is arrays
    for n, array in zip((1, 20, 3), arrays):
        np.testing.assert_array_equal(array, np.full(n, n * SIZE + SIZE * (SIZE - 1) // 2))
    assert all((array == SIZE - 1).all() for array in other.wait())


def test_send_buffers_with_gaps():
    grid = np.arange(24).reshape(4, 6) + RANK
    requests = [pycoll.iallreduce(grid[:, ::2], algorithm=name) for name in algorithms_of("allreduce")]
    for request in requests:
        np.testing.assert_array_equal(request.wait().reshape(4, 3), (grid - RANK)[:, ::2] * SIZE + sum(range(SIZE)))


def test_buffers_live_as_long_as_they_are_needed():
    """Buffers without other references live while the call is in flight, and are released when it is complete."""
    references = []

    def start(number):
        send, recv = np.full(LARGE // 8, number), np.empty(LARGE // 8, int)
        references.extend([weakref.ref(send), weakref.ref(recv)])
        return pycoll.iallreduce(send, recv, algorithm="ring")

    requests = [start(number) for number in range(4)]
    gc.collect()
    rubbish = [np.full(LARGE // 8, -1) for _ in range(4)]
    for number, request in enumerate(requests):
        assert (request.wait() == number * SIZE).all()
    del rubbish, request, requests
    gc.collect()
    assert [reference() for reference in references] == [None] * 8


def test_a_request_that_is_dropped_goes_on():
    recv = np.empty(LARGE // 8)
    pycoll.iallreduce(np.ones(LARGE // 8), recv, algorithm="ring")
    gc.collect()
    pycoll.barrier()
    while progress.tasks:
        progress.progress()
    assert (recv == SIZE).all()
    WORLD.Barrier()


@pytest.mark.parametrize("primitive, algorithm", [("allreduce", "tree"), ("scatterv", "tree"), ("alltoallv", "ring")])
def test_nothing_is_left_of_those_that_are_complete(primitive, algorithm):
    """Each leaked MPI request would keep half a kilobyte or more."""

    def run(times):
        one = case(primitive, count=1)
        for _ in range(times):
            begin(primitive, one, algorithm).Wait()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4  # KiB

    before = run(100)
    assert run(1500 if SIZE <= 2 else 200) - before < 500
