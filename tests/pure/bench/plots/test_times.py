"""Plots of the times of each algorithm."""

import pytest

pytest.importorskip("matplotlib")


from pycoll.base.figures import GREY
from pycoll.bench.curves import MPI
from pycoll.bench.plots.document import plots_of

from ..documents import SIZES, document, record


def draw(content=None, wide=True):
    _, plots = plots_of({"": content or document()}, "allreduce")
    (plot,) = plots.values()
    return plot.draw(wide=wide)


def panels(figure):
    return {axes.get_title("left"): axes for axes in figure.axes if axes.get_visible()}


@pytest.mark.parametrize("wide", [True, False])
def test_a_panel_for_each_algorithm_with_the_same_scales(wide):
    found = panels(draw(wide=wide))
    assert sorted(found) == [MPI, "ring", "tree"]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in found.values()}) == 1
    assert found["tree"].get_xscale() == found["tree"].get_yscale() == "log"


def test_band_from_minimum_to_the_99th_percentile_around_the_median():
    axes = panels(draw())["tree"]
    (band,) = axes.collections
    corners = {(x, y) for x, y in band.get_paths()[0].vertices.tolist()}
    assert corners == {(size, time) for size, median in zip(SIZES, (5, 8, 400)) for time in (median / 2, median * 3)}
    assert list(axes.lines[-1].get_ydata()) == [5.0, 8.0, 400.0]
    assert axes.get_ylim()[0] < 2.5 and axes.get_ylim()[1] > 1200


def test_mpi_in_grey_beside_each_algorithm_and_named():
    for name, axes in panels(draw()).items():
        grey = [line for line in axes.lines if line.get_color() == GREY]
        assert [list(line.get_ydata()) for line in grey] == [[10.0] * 3]
        assert [text.get_text() for text in axes.texts] == ([] if name == MPI else [MPI])


def test_times_of_mpi_from_beside_have_no_band():
    found = panels(draw(document(records=[record("ring", size, 5.0) for size in SIZES])))
    assert not len(found[MPI].collections[0].get_paths()) or not len(found[MPI].collections[0].get_paths()[0].vertices)


def test_labels_with_units():
    figure = draw()
    figure.draw_without_rendering()
    first, *_, last = panels(figure).values()
    assert first.get_ylabel() == "time (µs)" and last.get_xlabel() == "size"
    assert [tick.get_text() for tick in last.get_xticklabels()] == ["32 B", "1 KiB", "32 KiB", "1 MiB"]
    assert "1,000" in {tick.get_text() for tick in first.get_yticklabels()}


def test_says_where_and_warns_when_ranks_outnumber_cores():
    where = "MPICH 5 · 17 ranks on 2 hosts (n1, n2) · EPYC"
    assert draw(document(17)).get_supxlabel().startswith("Warning: 17 ranks on 16 cores.")
    assert draw(document(17)).get_supxlabel().endswith(where)
    assert draw(document(17, cores=9)).get_supxlabel() == where


def test_wrong_results_are_named_so():
    wrong = [record("ring", size, 5.0, wrong=2) for size in SIZES]
    assert "ring: WRONG" in panels(draw(document(records=wrong)))


def test_one_size_is_a_bar_for_each_algorithm():
    records = [record(name, 0, time, native=4.0) for name, time in (("tree", 5.0), ("mpi", 4.0))]
    (axes,) = draw(document(records=records)).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [MPI, "tree"]
    bars = [bar.get_segments()[0].tolist() for bar in axes.collections]
    assert bars == [[[2.0, 0.0], [12.0, 0.0]], [[2.5, 1.0], [15.0, 1.0]]]
    assert [text.get_text() for text in axes.texts] == ["4 µs", "5 µs, 0.80x MPI"]


def test_one_size_is_on_a_logarithmic_scale_if_an_outlier_would_hide_the_medians():
    (axes,) = draw(document(records=[record("tree", 0, 5.0, p99=500.0)])).axes
    assert axes.get_xscale() == "log" and axes.get_xlim()[1] > 500
    (axes,) = draw(document(records=[record("tree", 0, 5.0)])).axes
    assert axes.get_xscale() == "linear" and axes.get_xlim()[0] == 0
