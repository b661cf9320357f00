"""Methods of `pycoll.Comm` on ordinary buffers where there is registered memory: ranks agree, whatever they pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from tests.drawn import examples
from tests.mpi.api.test_comm_collectives_short import may_be_native
from tests.mpi.native import RANK, SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]

COUNT = 36 * 1024  # float32 elements of a block, for which registered buffers are used
OFTEN = 8
NAMES = "Bcast", "Scatter", "Gather", "Allgather", "Alltoall"


@pytest.fixture(scope="module")
def registered(comm):
    """Return registered buffers for a block of each rank, sent and received."""
    return [pycoll.zeros(SIZE * COUNT + 9, np.float32, comm=comm) for _ in range(2)]


@pytest.fixture
def ours(comm, registered):
    """Return the methods of a communicator that may leave calls to MPI."""
    may_be_native(comm)
    return pycoll.Comm(comm)


def ordinary():
    return [np.zeros(SIZE * COUNT + 9, np.float32) for _ in range(2)]


def call(ours, name, buffers, number, **given):
    """Call a method with views of the buffers, in other places in each call, and check the result."""
    send, recv = (one[number % 3 :] for one in buffers)
    sent, received = (SIZE if name in names else 1 for names in (("Alltoall", "Scatter"), NAMES[2:]))
    send, recv = send[: sent * COUNT], recv[: received * COUNT]
    send[:], recv[:] = RANK + number, -1.0
    if name == "Bcast":
        ours.Bcast(send, SIZE - 1, **given)
        assert (send == SIZE - 1 + number).all()
        return
    arguments = [[send, MPI.FLOAT] if number % 2 else send, recv]
    if name in ("Scatter", "Gather") and RANK:
        arguments[name == "Gather"] = None
    getattr(ours, name)(*arguments, **given)
    expected = 0 if name == "Scatter" else np.repeat(np.arange(SIZE), COUNT)
    assert arguments[1] is None or (recv == expected + number).all()


def goes_on(ours, name, buffers, number):
    """As `call`, with a collective in flight: for it, some ranks wait before the call and others after it."""
    send, recv = np.ones(1 << 14), np.zeros(1 << 14)
    request = pycoll.iallreduce(send, recv, comm=ours, algorithm="ring")
    if (RANK + number) % SIZE:
        request.Wait()
    call(ours, name, buffers, number)
    request.Wait()
    assert (recv == SIZE).all()


@pytest.mark.parametrize("name", NAMES)
def test_registered_buffers_are_used_in_between(comm, ours, registered, name):
    for number in range(2 * OFTEN):
        everywhere, here = number % OFTEN == 5, (number // 4 + RANK) % 2
        call(ours, name, registered if everywhere or (here and number % 2) else ordinary(), number)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_flight_goes_on(comm, ours, name):
    for number in range(2 * OFTEN):
        goes_on(ours, name, ordinary(), number)


@examples(15)
@given(st.data())
def test_ranks_agree_whatever_their_buffers(comm, ours, registered, data):
    """Check random sequences: the same calls on all ranks, with buffers that each rank draws for itself."""
    areas = ordinary(), registered
    mine = np.random.default_rng([RANK, data.draw(st.integers(0, 1000))])
    often = data.draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    for number in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from(NAMES))
        form = data.draw(st.sampled_from(["blocking", "blocking", "blocking", "nonblocking", "in flight", "named"]))
        buffers = areas[int(mine.random() < often)]
        if form == "nonblocking":
            send, recv = buffers[0][:COUNT], buffers[1][: SIZE * COUNT]
            send[:] = RANK
            ours.Iallgather(send, recv).Wait()
            assert (recv == np.repeat(np.arange(SIZE), COUNT)).all()
        elif form == "in flight":
            goes_on(ours, name, buffers, number)
        elif form == "named":
            call(ours, name, buffers, number, algorithm="naive")
        else:
            call(ours, name, buffers, number)


def test_a_named_algorithm_and_functions_run_the_schedules_of_pycoll(comm, ours):
    send, recv = ordinary()
    for _ in range(OFTEN + 2):
        with pycoll.traffic() as sent:
            ours.Allgather(send[:COUNT], recv[: SIZE * COUNT], algorithm="ring")
            pycoll.allgather(send[:COUNT], recv[: SIZE * COUNT], comm=comm)
        assert sent.nbytes >= 8 * COUNT


@pytest.mark.parametrize("algorithm", [None, "native"])
@pytest.mark.parametrize("longer", [[0], range(SIZE)], ids=["one", "all"])
@pytest.mark.parametrize("count", [40, COUNT])
def test_arrays_may_be_longer_than_the_count(comm, ours, registered, count, longer, algorithm):
    for number in range(OFTEN + 2):
        more = count if RANK in longer else 0
        send, recv = np.full(count + more, RANK + number, np.float32), np.zeros(SIZE * count + more, np.float32)
        ours.Allgather([send, count, MPI.FLOAT], [recv, count, MPI.FLOAT], algorithm=algorithm)
        assert (recv[: SIZE * count] == np.repeat(np.arange(SIZE) + number, count)).all()
        assert not recv[SIZE * count :].any()
        ours.Bcast([send, count, MPI.FLOAT], SIZE - 1, algorithm=algorithm)
        assert (send[:count] == SIZE - 1 + number).all() and (send[count:] == RANK + number).all()


def test_arrays_may_overlap_if_the_parts_that_are_used_do_not(comm, ours):
    for number in range(OFTEN + 2):
        area = np.full((SIZE + 1) * COUNT, RANK + number, np.float32)
        ours.Allgather([area, COUNT, MPI.FLOAT], [area[COUNT:], COUNT, MPI.FLOAT])
        assert (area[COUNT:] == np.repeat(np.arange(SIZE) + number, COUNT)).all()
        ours.Allreduce([area, COUNT, MPI.FLOAT], [area[COUNT : 2 * COUNT], COUNT, MPI.FLOAT])
        assert (area[COUNT : 2 * COUNT] == sum(range(SIZE)) + SIZE * number).all()
