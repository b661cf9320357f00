"""Conversion of benchmark records to curves."""

import pytest

from pycoll.bench import curves

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


def test_ratios_of_the_same_rounds_decide():
    found = curves_of([record("ring", 8, 40.0, ratio=1.2), record("tree", 8, 20.0, ratio=0.5)])
    assert [curves.ratio(found, name, 8) for name in ("ring", "tree")] == [1.2, 0.5]
    assert curves.fastest(found, 8) == "ring"
    assert [row["ratio"] for row in curves.ranges(found)] == ["1.20"]


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


def fastest_in_ranges(times):
    sizes = (8, 64, 512, 4096)
    found = curves_of([record(name, size, time) for name, row in times.items() for size, time in zip(sizes, row)])
    return [(row["sizes"], row["fastest"]) for row in curves.ranges(found)]


def test_ranges_do_not_end_where_another_algorithm_is_faster_by_noise():
    close = {"tree": (1.0, 1.04, 1.0, 2.0), "ring": (2.0, 1.0, 1.04, 1.0)}
    assert fastest_in_ranges(close) == [("8 B to 512 B", "tree"), ("4 KiB", "ring")]
    apart = {**close, "tree": (1.0, 1.06, 1.0, 2.0)}
    assert fastest_in_ranges(apart) == [("8 B", "tree"), ("64 B to 4 KiB", "ring")]


def test_ranges_end_where_an_algorithm_was_not_timed_or_is_wrong():
    ring = [record("ring", 8, 2.0), record("ring", 64, 1.0)]
    for second in ([], [record("tree", 64, None)], [record("tree", 64, 1.0, wrong=1)]):
        found = curves_of([record("tree", 8, 1.0), *second, *ring])
        assert [(row["sizes"], row["fastest"]) for row in curves.ranges(found)] == [("8 B", "tree"), ("64 B", "ring")]


def test_wrong_results_do_not_stand_out():
    found = curves_of([record("ring", 8, 1.0, wrong=1), record("tree", 8, 5.0)])
    assert curves.standouts([found], 3) == ["tree"]
