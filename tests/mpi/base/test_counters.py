"""`pycoll.traffic` counts the bytes and messages that a rank sends to other ranks."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
LENGTH = 1000 * SIZE


def test_the_ring_sends_what_its_formula_says():
    vector, result = np.ones(LENGTH), np.empty(LENGTH)
    pycoll.allreduce(vector, result, algorithm="ring")
    with pycoll.traffic() as sent:
        for _ in range(3):
            pycoll.allreduce(vector, result, algorithm="ring")
    assert sent.nbytes == 3 * 2 * (SIZE - 1) * vector.nbytes // SIZE
    assert sent.messages >= (SIZE > 1) * 3 * 2 * (SIZE - 1)
    pycoll.allreduce(vector, result, algorithm="ring")  # no longer counted
    assert sent.nbytes == 3 * 2 * (SIZE - 1) * vector.nbytes // SIZE


@pytest.mark.skipif(SIZE == 1, reason="there is nobody to send to")
def test_all_forms_and_point_to_point_are_counted_and_nested():
    vector = np.ones(LENGTH)
    share = 2 * (SIZE - 1) * vector.nbytes // SIZE
    with pycoll.traffic() as outer:
        pycoll.iallreduce(vector, comm=WORLD, algorithm="ring").wait()
        with pycoll.traffic() as inner, pycoll.allreduce_init(vector, np.empty(LENGTH), algorithm="ring") as reduction:
            reduction.Start()
            reduction.Wait()
        request = pycoll.isend(vector, (RANK + 1) % SIZE)
        pycoll.recv(np.empty(LENGTH), (RANK - 1) % SIZE)
        request.Wait()
        pycoll.sendrecv(vector, (RANK + 1) % SIZE, source=(RANK - 1) % SIZE)
        pycoll.send(vector, MPI.PROC_NULL)
        pycoll.sendrecv(vector, RANK, source=RANK)
    assert inner.nbytes == share
    assert outer.nbytes == 2 * share + 2 * vector.nbytes
