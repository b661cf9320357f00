"""Conversion of benchmark records to curves."""

import pytest

from bench import curves

from .documents import document, record


def curves_of(records):
    content = document(records=records)
    (variant,) = curves.variants([content])
    return curves.curves(content, variant)


def test_no_mpi_of_its_own_is_taken_from_what_was_timed_beside():
    own = curves_of([record("ring", 8, 5.0)])[curves.MPI][8]
    assert own["median"] == 10.0
    assert own["busbw"] == pytest.approx(8 / 10.0 / 1e3)
    assert own["min"] is own["p99"] is None  # min and p99 were measured for the ring only


@pytest.mark.parametrize(
    ("times", "most", "chosen"),
    [
        ({"short": (1, 9), "long": (9, 1), "middle": (2, 2)}, 2, ["middle", "short"]),
        ({"short": (1, 9), "long": (9, 1), "middle": (2, 2)}, 3, ["middle", "short", "long"]),
        ({"always": (1, 1), "never": (2, 2)}, 2, ["always"]),
        ({"auto": (1, 1), "ring": (2, 2)}, 2, ["ring"]),
    ],
)
def test_standouts(times, most, chosen):
    found = curves_of([record(name, size, time) for name, pair in times.items() for size, time in zip((8, 64), pair)])
    assert curves.standouts([found], most) == chosen


def test_wrong_results_do_not_stand_out():
    found = curves_of([record("ring", 8, 1.0, wrong=1), record("tree", 8, 5.0)])
    assert curves.standouts([found], 3) == ["tree"]
