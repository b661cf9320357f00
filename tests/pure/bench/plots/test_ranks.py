"""Plots against ranks."""

import pytest

pytest.importorskip("matplotlib")


from pycoll.bench import curves
from pycoll.bench.plots.document import plot_by_ranks
from pycoll.bench.plots.ranks import common_sizes

from ..documents import document, record


def variant_of(content):
    return next(iter(curves.variants([content])))


def draw(documents, wide=True):
    return plot_by_ranks(documents, variant_of(documents[0]), "allreduce", "name").draw(wide=wide)


def test_lines_are_the_fastest_and_mpi_in_the_order_of_ranks():
    axes = draw([document(8, speed=0.5), document(2)]).axes[0]
    lines = {line.get_label(): [*zip(*line.get_data())] for line in axes.lines}
    assert lines == {"fastest": [(2, 5.0), (8, 10.0)], curves.MPI: [(2, 10.0), (8, 10.0)]}
    assert {text.get_text() for text in axes.texts} == set(lines)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2 (2)", "8 (2)"]


def test_bands_of_time_and_of_bandwidth():
    figure = draw([document(8), document(2)])
    time, bandwidth = figure.axes[0], figure.axes[3]
    assert time.get_ylabel() == "time (µs)" and bandwidth.get_ylabel() == "bus bandwidth (GB/s)"
    for axes, middle in ((time, 5.0), (bandwidth, 8 / 5.0 / 1e3)):
        place = [line.get_label() for line in axes.lines].index("fastest")
        heights = {y for _, y in axes.collections[place].get_paths()[0].vertices.tolist()}
        low, high = (2, 3) if axes is time else (3, 2)
        assert sorted(heights) == pytest.approx([middle / low, middle * high])


@pytest.mark.parametrize("wide", [True, False])
def test_a_panel_for_each_size_and_key(wide):
    figure = draw([document(8), document(2)], wide)
    found = [(axes.get_title("left"), axes.get_ylabel()[:4]) for axes in figure.axes]
    sizes = ("8 B", "1 KiB", "1 MiB")
    by_size = [(size, key) for size in sizes for key in ("time", "bus ")]
    assert found == ([(size, key) for key in ("time", "bus ") for size in sizes] if wide else by_size)


def test_warns_of_those_that_outnumber_the_cores():
    assert draw([document(8), document(32)]).get_supxlabel().startswith("Warning: 32 ranks on 16 cores.")


def test_barriers_have_no_bandwidth():
    barriers = [document(ranks, records=[record("tree", 0, 5.0, busbw=None)]) for ranks in (2, 4)]
    assert [axes.get_ylabel() for axes in draw(barriers).axes] == ["time (µs)"]


def test_nothing_timed_is_no_plot():
    checked = [document(ranks, records=[record("tree", 8, None, native=None)]) for ranks in (2, 4)]
    assert plot_by_ranks(checked, variant_of(checked[0]), "allreduce", "name") is None


def test_sizes_that_are_nearly_the_same_match():
    three = document(3, records=[record("ring", size, 1.0) for size in (12, 1020, (1 << 20) - 4)])
    assert common_sizes([document(), three], variant_of(three)) == [[1024, 1020], [1 << 20, (1 << 20) - 4]]
