"""All-reduces on tori: each message goes along one dimension, and all ports are busy."""

import numpy as np
import pytest

from pycoll.schedule.cuts import ports, side, sides
from pycoll.schedule.moves import Send
from pycoll.schedule.registry import find


@pytest.mark.parametrize(
    "size, k, expected",
    [(64, 1, (64,)), (64, 2, (8, 8)), (64, 3, (4, 4, 4)), (12, 2, (4, 3)), (72, 3, (6, 4, 3)), (7, 2, (7, 1))],
)
def test_sides_are_those_of_mpi_dims_create(size, k, expected):
    assert sides(size, k) == expected
    assert ports(size, k) == 2 * sum(side > 1 for side in expected)


@pytest.mark.parametrize("size", range(1, 40))
def test_a_cube_has_a_place_for_each_rank(size):
    for k in (1, 2, 3):
        assert (side(size, k) - 1) ** k < size <= side(size, k) ** k


def steps(name, size, k):
    """Yield for each round of rank 5 the differences between its coordinates and those of its receivers."""
    shape = sides(size, k)
    place = np.array(np.unravel_index(5, shape))
    for moves in find("allreduce", f"{name}:{k}").schedule(5, size):
        to = [np.unravel_index(move.to, shape) for move in moves if isinstance(move, Send)]
        yield (np.array(to) - place + np.array(shape) // 2) % shape - np.array(shape) // 2


@pytest.mark.parametrize("size, k", [(9, 1), (16, 2), (64, 3), (36, 2)])
def test_the_bucket_algorithm_sends_to_each_neighbor_in_each_round(size, k):
    for found in steps("bucket", size, k):
        assert (np.abs(found).sum(1) == 1).all()
        assert len({tuple(each) for each in found}) == len(found) == 2 * k


@pytest.mark.parametrize("size, k", [(8, 1), (64, 2), (64, 3)])
def test_swing_sends_along_each_dimension_in_both_directions(size, k):
    sums = [np.abs(found).sum(1) for found in steps("torus_swing", size, k)]
    for found in steps("torus_swing", size, k):
        assert (np.count_nonzero(found, axis=1) == 1).all() and len(found) == 2 * k
        axes = np.abs(found).argmax(1)
        assert sorted(axes) == sorted([*range(k)] * 2)
    assert (sums[0] == 1).all() and (sums[-1] == 1).all()  # the nearest are first and last, with the most bytes
