"""The formulas in the docstrings agree with the counts of the proof."""

import subprocess
import sys

import pytest

from pycoll.schedule.costs import count, disagreements, documented, evaluate, missing_lines, table
from pycoll.schedule.proof import prove

from .test_proof import ALGORITHMS

SMALL = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17]
LARGE = [19, 23, 32, 33, 45, 64]


@pytest.mark.parametrize("sizes", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_formulas_hold(algorithm, sizes):
    for size in sizes:
        for segments in (1, 3) if algorithm.pipelined and size < 40 else (1,):
            assert not disagreements(algorithm, size, segments)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.knows_hosts], ids=str)
def test_formulas_hold_for_several_ranks_on_each_host(algorithm):
    for hosts, ranks in ((1, 5), (2, 2), (4, 2), (3, 4), (4, 1)):
        assert not disagreements(algorithm, hosts * ranks, 2, tuple(range(hosts)) * ranks)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_docstrings_are_complete(algorithm):
    assert not missing_lines(algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_bounds_are_not_loose(algorithm):
    """Check that the count exceeds 0.66 of each bound for some number of ranks."""
    formulas = documented(algorithm)
    for field, counted in (("Sent", "sent"), ("Received", "received")):
        if "at most" in formulas.get(field, ""):
            ratios = []
            for size in range(2, 34):
                blocks = algorithm.parts(size, 4)
                value = evaluate(formulas[field], size, blocks, 4, k=algorithm.k)
                ratios.append(max(getattr(count(algorithm, size, segments=4), counted)) / value)
            assert max(ratios) > 0.66


def test_figures_that_everybody_knows():
    by_name = {str(algorithm): algorithm for algorithm in ALGORITHMS}
    ring = prove(by_name["allreduce.ring"], 8, nbytes=lambda block: 100)
    assert ring.sent == ring.received == [2 * 7 * 100] * 8  # 2 (p-1)/p Z, Z = 800
    naive = prove(by_name["allreduce.naive"], 8, nbytes=lambda block: 800)
    assert naive.sent[0] == naive.received[0] == 7 * 800
    uncut = prove(by_name["allreduce.ring_whole"], 8, nbytes=lambda block: 800)
    assert uncut.sent == [7 * 800] * 8


@pytest.mark.parametrize(
    "arguments, code, printed",
    [
        ([], 0, table()),
        (["--help"], 0, "usage: python -m pycoll.costs"),
        (["--verbose"], 2, "python -m pycoll.costs: unrecognized arguments: --verbose"),
    ],
)
def test_the_command(arguments, code, printed):
    done = subprocess.run(
        [sys.executable, "-m", "pycoll.costs", *arguments], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code and (done.stderr if code else done.stdout).startswith(printed)
