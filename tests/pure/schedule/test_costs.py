"""The formulas in the docstrings against what the proof counts, and the README's table against the formulas."""

from functools import partial
from pathlib import Path

import pytest

from pycoll.schedule.costs import FIELDS, Network, documented, evaluate, formula_for, table
from pycoll.schedule.proof import prove

from .test_proof import ALGORITHMS

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 19, 23, 27, 31, 32, 33, 45, 64, 65]
COSTS = {"alpha": Network(alpha=1), "beta": Network(beta=1), "gamma": Network(gamma=1)}


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_formulas_hold(algorithm):
    formulas = documented(algorithm)
    for size in SIZES:
        for segments in (1, 2, 5) if algorithm.pipelined and size < 40 else (1,):
            counts = prove(algorithm, size, segments=segments, nbytes=partial(nbytes, size))
            blocks = algorithm.parts(size, segments)  # each counts as one byte
            counted = {
                "Rounds": counts.rounds,
                "Messages": max(counts.messages),
                "Sent": max(counts.sent),
                "Received": max(counts.received),
            }
            for field, count in counted.items():
                compare(formulas.get(field, "0"), count, size, blocks, segments)
            for name, network in COSTS.items():
                compare(formulas["Cost"], getattr(counts, name), size, blocks, segments, network)


def nbytes(size, block):
    """A block is one byte; what a rank tells the others is a count of 8 bytes for each rank."""
    return 8 * size if isinstance(block, tuple) and block[0] == "counts" else 1


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.knows_hosts], ids=str)
def test_formulas_hold_for_several_ranks_on_each_host(algorithm):
    formulas = documented(algorithm)
    for count, ranks in ((1, 5), (2, 2), (4, 2), (3, 4), (4, 1)):
        hosts, size = tuple(range(count)) * ranks, count * ranks
        counts = prove(algorithm, size, segments=2, hosts=hosts)
        blocks = algorithm.parts(size, 2, hosts)
        counted = {"Rounds": counts.rounds, "Messages": max(counts.messages), "Sent": max(counts.sent)}
        counted["Received"] = max(counts.received)
        for field, number in counted.items():
            compare(formulas[field], number, size, blocks, 2, hosts=count)
        for name, network in COSTS.items():
            compare(formulas["Cost"], getattr(counts, name), size, blocks, 2, network, count)


def compare(formula, counted, size, Z, segments, network=None, hosts=None):
    value = evaluate(formula, size, Z, segments, network, hosts)
    if size == 1 or formula_for(formula, size)[1]:
        assert counted == pytest.approx(value, abs=1e-9), f"{formula} for p={size}, S={segments}"
    else:
        assert counted <= value + 1e-9, f"{formula} for p={size}, S={segments}"


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_docstrings_are_complete(algorithm):
    found = documented(algorithm)
    expected = set(FIELDS) - {"Limits"} - ({"Sent", "Received"} if algorithm.primitive.name == "barrier" else set())
    assert expected <= set(found)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_bounds_are_not_loose(algorithm):
    """Where a formula is a bound, some number of ranks comes within a third of it."""
    formulas = documented(algorithm)
    for field, counted in (("Sent", "sent"), ("Received", "received")):
        if "at most" in formulas.get(field, ""):
            ratios = []
            for size in range(2, 34):
                blocks = algorithm.parts(size, 4)
                value = evaluate(formulas[field], size, blocks, 4)
                counts = prove(algorithm, size, segments=4, nbytes=partial(nbytes, size))
                ratios.append(max(getattr(counts, counted)) / value)
            assert max(ratios) > 0.66


def test_figures_that_everybody_knows():
    by_name = {str(algorithm): algorithm for algorithm in ALGORITHMS}
    ring = prove(by_name["allreduce.ring"], 8, nbytes=lambda block: 100)
    assert ring.sent == ring.received == [2 * 7 * 100] * 8  # 2 (p-1)/p Z, Z = 800
    naive = prove(by_name["allreduce.naive"], 8, nbytes=lambda block: 800)
    assert naive.sent[0] == naive.received[0] == 7 * 800
    uncut = prove(by_name["allreduce.ring_whole"], 8, nbytes=lambda block: 800)
    assert uncut.sent == [7 * 800] * 8


def test_the_readme_has_the_table():
    readme = Path(__file__).parents[3] / "README.md"
    assert table() in readme.read_text(), "paste the output of `python -m pycoll.costs` into README.md"
