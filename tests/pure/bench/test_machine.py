"""Descriptions of the machines on which results were measured."""

import pytest

from pycoll.bench.machine import alone, disturbed, oversubscribed, where


def environment(ranks=4, hosts=("n1",), cores=2, **others):
    return {"ranks": ranks, "hosts": list(hosts), "mpi": "MPICH 5", "cores": cores, **others}


def test_where():
    assert where([environment(cpu="EPYC", gpu="H100")]) == "MPICH 5 · 4 ranks on 1 host (n1) · EPYC · H100"
    assert where([environment(1, "abcde")]) == "MPICH 5 · 1 rank on 5 hosts (a, b, c, d, ...)"


def test_a_line_for_all_that_differ_in_ranks_only():
    several = [environment(4), environment(2), environment(2, mpi="Open MPI"), environment(4)]
    assert where(several) == "MPICH 5 · 2, 4 ranks on 1 host (n1)\nOpen MPI · 2 ranks on 1 host (n1)"


@pytest.mark.parametrize(
    ("several", "counts"),
    [
        ([environment()], "4 ranks on 2 cores"),
        ([environment(2, cores=1)], "2 ranks on 1 core"),
        ([environment(4), environment(8), environment(2)], "4, 8 ranks on 2 cores"),
        ([environment(9, "ab", 4), environment()], "4 ranks on 2 cores, 9 ranks on 8 cores"),
    ],
)
def test_more_ranks_than_cores(several, counts):
    assert oversubscribed(several).startswith(f"Warning: {counts}. ")


@pytest.mark.parametrize("each", [environment(2), environment(4, "ab"), environment(cores=None)])
def test_no_warning(each):
    assert oversubscribed([each]) is None


def test_one_rank():
    assert alone(1).startswith("Warning: one rank sends no messages; ") and alone(2) is None


def test_medians_that_are_several_times_the_minima():
    calm = [{"min": 10.0, "median": 12.0}, {"min": None, "median": None}]
    assert disturbed(calm) is None
    warning = disturbed([*calm, {"min": 10.0, "median": 84.0}, {"min": 10.0, "median": 31.0}])
    assert warning.startswith("Warning: 2 of 3 medians are 3 to 8.4 times their minima. ")
