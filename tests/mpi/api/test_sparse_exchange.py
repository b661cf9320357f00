"""Exchanges of which only the senders know who receives."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from tests.drawn import examples
from tests.mpi.native import MANY, RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def test_messages_arrive_by_source_and_in_order():
    right = (RANK + 1) % SIZE
    buffers = [np.full((2, RANK), RANK), np.array("text"), np.array([RANK], "c8"), np.zeros(0, "i1")]
    received = pycoll.sparse_exchange([right, right, 0, right], buffers)
    left = (RANK - 1) % SIZE
    mine = [array for source, array in received if source == left and array.dtype != "c8"]
    assert [array.dtype for array in mine] == [buffers[0].dtype, buffers[1].dtype, np.dtype("i1")]
    np.testing.assert_array_equal(mine[0], np.full((2, left), left))
    assert mine[1] == "text" and mine[2].shape == (0,)
    numbers = [(source, array[0].real) for source, array in received if array.dtype == "c8"]
    assert numbers == ([(rank, rank) for rank in range(SIZE)] if RANK == 0 else [])
    assert [source for source, _ in received] == sorted(source for source, _ in received)


def test_nobody_sends():
    assert pycoll.sparse_exchange([], []) == []


def test_long_messages_and_views():
    matrix = np.arange(600_000.0).reshape(600, 1000) + RANK
    received = pycoll.sparse_exchange(range(SIZE), [matrix.T] * SIZE)
    assert [source for source, _ in received] == list(range(SIZE))
    for source, array in received:
        np.testing.assert_array_equal(array, (matrix - RANK + source).T)
        array[:] = 0  # its own memory
    assert matrix[0, 1] == 1 + RANK


@st.composite
def drawn(draw):
    ranks = st.integers(0, SIZE - 1)
    return draw(st.lists(st.lists(st.tuples(ranks, st.integers(0, 3000)), max_size=6), min_size=3, max_size=3))


@examples(15 if MANY else 50)
@hypothesis.given(calls=drawn())
def test_drawn_exchanges(together, calls):
    together(check, calls)


def check(calls):
    """Several calls follow each other; rank r sends what the others send, moved by r ranks."""
    results = []
    for call in calls:
        to = [(rank + RANK) % SIZE for rank, _ in call]
        results.append(pycoll.sparse_exchange(to, [np.arange(length) + RANK for _, length in call]))
    for call, received in zip(calls, results):
        expected = [(source, length) for source in range(SIZE) for to, length in call if (to + source) % SIZE == RANK]
        assert [(source, len(array)) for source, array in received] == expected
        for source, array in received:
            np.testing.assert_array_equal(array, np.arange(len(array)) + source)


def test_beside_collectives_in_flight():
    result = np.zeros(1000)
    request = pycoll.iallreduce(np.ones(1000), result, algorithm="ring")
    received = pycoll.sparse_exchange([(RANK + 1) % SIZE], [np.array([RANK])])
    request.Wait()
    assert received[0][1][0] == (RANK - 1) % SIZE and (result == SIZE).all()


def test_wrong_arguments():
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"destinations\[1\]={SIZE} is not a rank of the communicator of size"):
            pycoll.sparse_exchange([0, SIZE], [np.zeros(1)] * 2)
        with pytest.raises(TypeError, match=r"destinations\[0\]=1.5 is not an integer"):
            pycoll.sparse_exchange([1.5], [np.zeros(1)])
        with pytest.raises(ValueError, match=r"there are 1 buffers for 2 destinations"):
            pycoll.sparse_exchange([0, 0], [np.zeros(1)])
        with pytest.raises(TypeError, match=r"buffers\[0\]"):
            pycoll.sparse_exchange([0], [object()])
    assert pycoll.sparse_exchange([], [], comm=WORLD) == []


def test_the_method_takes_buffer_specifications():
    ours = pycoll.Comm(WORLD)
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    matrix = np.arange(6.0).reshape(2, 3) + RANK
    column = MPI.DOUBLE.Create_vector(2, 1, 3).Commit()
    buffers = [matrix, [matrix, MPI.DOUBLE], (matrix, 2, MPI.DOUBLE), [matrix, 1, column]]
    received = ours.sparse_exchange([right] * 4, buffers)
    column.Free()
    theirs = matrix - RANK + left
    assert [source for source, _ in received] == [left] * 4
    for (_, array), expected in zip(
        received, [theirs, theirs.ravel(), theirs[0, :2], theirs[:, 0].copy().view(np.uint8)]
    ):
        np.testing.assert_array_equal(array, expected, strict=True)


def test_wrong_arguments_of_the_method():
    ours = pycoll.Comm(WORLD)
    with pytest.raises(TypeError, match=r"buffers\[0\] .*; to pass an MPI datatype with a buffer, use pycoll.Comm"):
        pycoll.sparse_exchange([0], [[np.zeros(1), MPI.DOUBLE]])
    with pytest.raises(ValueError, match=r"buffers\[0\] has 8 bytes, but 2 elements at displacement 0 end at byte 16"):
        ours.sparse_exchange([0], [[np.zeros(1), 2, MPI.DOUBLE]])
    with pytest.raises(TypeError, match=r"buffers\[1\]"):
        ours.sparse_exchange([0, 0], [np.zeros(1), object()])
    with pytest.raises(ValueError, match=rf"destinations\[0\]={SIZE} is not a rank"):
        ours.sparse_exchange([SIZE], [np.zeros(1)])
    assert ours.sparse_exchange([], []) == []


def test_on_a_part_of_the_ranks():
    half = WORLD.Split(RANK % 2, -RANK)
    received = pycoll.sparse_exchange([half.size - 1], [np.array([RANK])], comm=half)
    assert len(received) == (half.size if half.rank == half.size - 1 else 0)
    assert half.allreduce(len(received), MPI.SUM) == half.size
    half.Free()
