"""Methods of `pycoll.Comm` on ordinary buffers where there is registered memory: MPI's own collectives run them."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.compiler.program import is_native
from pycoll.runtime.attach import attach
from pycoll.runtime.sharing import SharedPlan
from pycoll.selection.rules import native_up_to
from tests.mpi.api.test_short import may_be_native
from tests.mpi.native import RANK, SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]

COUNT = 36 * 1024  # float32 elements of a block, which are more bytes than Comm leaves to MPI at once


@pytest.fixture
def ours(comm):
    memory = pycoll.empty(1, comm=comm)
    may_be_native(comm)
    yield pycoll.Comm(comm)
    pycoll.free(memory, comm=comm)


@pytest.fixture
def native_plans(comm):
    """Return a function that counts the plans of calls that MPI runs if buffers are not registered."""
    plans = attach(comm).plans
    plans.clear()
    return lambda: sum(isinstance(plan, SharedPlan) and is_native(plan.messages.program) for plan in plans.values())


def allocate(comm, registered):
    """Return buffers for one block and for a block of each rank."""
    if registered:
        return pycoll.zeros(COUNT + 9, np.float32, comm=comm), pycoll.zeros(SIZE * COUNT + 9, np.float32, comm=comm)
    return np.zeros(COUNT + 9, np.float32), np.zeros(SIZE * COUNT + 9, np.float32)


@pytest.mark.parametrize("primitive", ["bcast", "gather", "allgather", "alltoall"])
def test_the_limits_of_such_calls(primitive):
    for library in "MPICH", "Open MPI":
        assert native_up_to(primitive, library, registered=True) < 4 * COUNT <= native_up_to(primitive, library)


def call(ours, name, block, blocks, number):
    """Call a method with views of the buffers, in other places in each call, and check the result."""
    start = number % 3
    block, blocks = block[start:][:COUNT], blocks[start:][: SIZE * COUNT]
    block[:], blocks[:] = RANK + number, -1.0
    everything = np.repeat(np.arange(SIZE) + number, COUNT)
    if name == "Bcast":
        ours.Bcast(block, SIZE - 1)
        block -= SIZE - 1 + number
        assert not block.any()
    elif name == "Gather":
        ours.Gather([block, MPI.FLOAT], blocks if RANK == 0 else None)
        assert RANK or (blocks == everything).all()
    elif name == "Allgather":
        ours.Allgather(block, blocks)
        assert (blocks == everything).all()
    elif name == "Alltoall":
        blocks[:] = RANK + number
        given = blocks.copy() if number % 2 else blocks + np.float32(0)
        ours.Alltoall(given, blocks)
        assert (blocks == everything).all()


@pytest.mark.parametrize("name", ["Bcast", "Gather", "Allgather", "Alltoall"])
def test_results(comm, ours, native_plans, name):
    for number in range(8):
        call(ours, name, *allocate(comm, False), number)
    assert native_plans() == 1
    block, blocks = allocate(comm, False)
    for number in range(8):
        call(ours, name, block, blocks, number)


@pytest.mark.parametrize("name", ["Bcast", "Gather", "Allgather"])
def test_some_ranks_change_between_ordinary_and_registered_buffers(comm, ours, name):
    ordinary, registered = allocate(comm, False), allocate(comm, True)
    for number in range(24):
        kind = registered if number // 8 == 1 or (number // 4 + RANK) % 2 else ordinary
        call(ours, name, *kind, number)
    pycoll.free(registered[0], comm=comm)
    pycoll.free(registered[1], comm=comm)


def test_what_is_in_flight_goes_on(comm, ours):
    """Rank 0 waits in MPI for ranks that first wait for a collective that rank 0 has in flight."""
    block, blocks = allocate(comm, False)
    send, large = np.ones(1 << 16), np.zeros(1 << 16)
    for number in range(6):
        flight = pycoll.iallreduce(send, large, comm=comm, algorithm="ring")
        if RANK:
            flight.Wait()
        call(ours, "Allgather", block, blocks, number)
        flight.Wait()
        assert (large == SIZE).all()


def test_a_named_algorithm_is_run(comm, ours, native_plans):
    block, blocks = allocate(comm, False)
    with pycoll.traffic() as sent:
        ours.Allgather(block[:COUNT], blocks[: SIZE * COUNT], algorithm="ring")
    assert sent.nbytes >= 4 * COUNT and native_plans() == 0


def test_functions_run_the_algorithms_of_pycoll(comm, ours, native_plans):
    block, blocks = allocate(comm, False)
    with pycoll.traffic() as sent:
        pycoll.allgather(block[:COUNT], blocks[: SIZE * COUNT], comm=comm)
    assert sent.nbytes >= 4 * COUNT and native_plans() == 0
