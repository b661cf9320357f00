"""Schedules are symmetric where their algorithms say so, and algorithms say so where their schedules are."""

from dataclasses import replace

import pytest

from pycoll.prove import examine
from pycoll.schedule.cuts import around, halves, sides
from pycoll.schedule.registry import algorithm, find
from pycoll.schedule.symmetry import NotSymmetric, moved, symmetric_rounds
from tests.pure.schedule.test_proof import ALGORITHMS

GRIDS = {"around": around, "halves": halves, "sides": lambda size: sides(size, 2)}
SIZES = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 27, 32
SYMMETRIC = [algorithm for algorithm in ALGORITHMS if algorithm.symmetry]


@pytest.mark.parametrize("algorithm", SYMMETRIC, ids=str)
def test_all_ranks_follow_from_the_first(algorithm):
    for size in SIZES:
        assert (symmetric_rounds(algorithm, size, range(size)) is None) == (not algorithm.symmetry(size))


def follows(algorithm, grid):
    """Return whether a schedule is symmetric on a grid, for all sizes."""
    try:
        for size in SIZES:
            symmetric_rounds(replace(algorithm, symmetry=grid), size, range(size))
    except ValueError:
        return False
    return True


def test_all_symmetric_schedules_are_known():
    others = [algorithm for algorithm in ALGORITHMS if not algorithm.symmetry and not algorithm.primitive.rooted]
    same = [one for one in others if not one.needs_counts and not one.pipelined and not one.knows_hosts]
    assert not [f"{one} on {name}" for one in same for name, grid in GRIDS.items() if follows(one, grid)]


def test_a_wrong_claim_names_a_rank():
    wrong = replace(find("allreduce", "tree"), symmetry=around)
    with pytest.raises(NotSymmetric, match=r"allreduce.tree on 4 ranks is not symmetric: the rounds of rank 1"):
        symmetric_rounds(wrong, 4, range(4))
    assert "is not symmetric" in examine(wrong, [2, 3, 4]).problem


def test_schedules_that_depend_on_more_cannot_be_symmetric():
    def pipelined(rank, size, segments):
        yield ()

    pipelined.__module__ = "allreduce"
    with pytest.raises(ValueError, match="pipelined depends on segments: then symmetry cannot be given"):
        algorithm(symmetry=around)(pipelined)


def test_parts_that_are_not_those_of_ranks_are_simulated_rank_by_rank():
    compiled = pytest.importorskip("pycoll.simulate.compiled")
    two = replace(find("allreduce", "ring"), cut=lambda size, segments, hosts: 2)
    assert compiled.template(two, 4, 7) is None


def test_moves_on_a_grid():
    assert moved(5, 4, (7,)) == 2
    assert [moved(3, rank, (2, 2)) for rank in range(4)] == [3 ^ rank for rank in range(4)]
    assert moved(1 * 12 + 2 * 4 + 3, 1 * 12 + 1 * 4 + 2, (2, 3, 4)) == 0 * 12 + 0 * 4 + 1
