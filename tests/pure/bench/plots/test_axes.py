"""Axis scales, and labels next to lines."""

import pytest

pytest.importorskip("matplotlib")


from matplotlib.figure import Figure

from pycoll.bench.plots.axes import apart, log_sizes, log_values


@pytest.mark.parametrize(
    ("wanted", "gap", "found"),
    [
        ([0.2, 0.8], 0.1, [0.2, 0.8]),
        ([0.5, 0.5], 0.2, [0.4, 0.6]),
        ([0.6, 0.5, 0.55], 0.1, [0.65, 0.45, 0.55]),
        ([1.0, 0.99], 0.1, [1.0, 0.9]),
        ([0.0, -1.0], 0.1, [0.1, 0.0]),
        ([0.5, 0.5, 0.5], 0.6, [0.0, 0.6, 1.2]),  # more labels than fit
        ([], 0.1, []),
    ],
    ids=str,
)
def test_apart(wanted, gap, found):
    assert apart(wanted, gap) == pytest.approx(found)


@pytest.mark.parametrize(
    ("sizes", "most", "ticks"),
    [
        ([1 << power for power in range(3, 27)], 5, ["32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB"]),
        ([1 << power for power in range(3, 27)], 3, ["1 KiB", "1 MiB"]),
        ([1 << 20, 1 << 22], 3, ["1 MiB", "2 MiB", "4 MiB"]),
        ([12, 1020], 3, ["16 B", "64 B", "256 B"]),
        ([12, 20], 3, ["12 B", "20 B"]),
        ([8, 1 << 36], 3, ["1 KiB", "1 MiB", "1 GiB"]),
    ],
    ids=str,
)
def test_marked_sizes(sizes, most, ticks):
    axes = Figure().subplots()
    log_sizes(axes, sizes, most)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks


@pytest.mark.parametrize("bounds", [(0.53, 1.3), (0.9, 1.2), (0.4, 1), (1, 2.4), (0.02, 1.5), (0.8, 90)])
def test_numbers_of_a_ratio_include_one(bounds):
    axes = Figure().subplots()
    log_values(axes, *bounds, base=2)
    shown = [tick for tick in axes.get_yticks() if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]]
    assert pytest.approx(1) in shown and 2 <= len(shown) <= 8
