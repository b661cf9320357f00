"""Plots of the speed relative to MPI."""

from itertools import pairwise

import pytest

pytest.importorskip("matplotlib")


from matplotlib.text import Text

from pycoll.base.figures import BLUE, GREY, INK
from pycoll.bench.curves import MPI
from pycoll.bench.plots.document import plots_of

from ..documents import document, record


def draw(wide=True, **documents):
    (plot,), _ = plots_of(documents or {"": document()}, "allreduce")
    return plot.draw(wide=wide)


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_lines_are_the_time_of_mpi_divided_by_that_of_the_algorithm():
    (axes,) = draw().axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert list(lines(axes)["tree"].get_ydata()) == [2.0, 1.25, 0.025]
    assert list(lines(axes)["ring"].get_xdata()) == [8, 1024, 1 << 20]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["32 B", "1 KiB", "32 KiB", "1 MiB"]
    assert axes.get_ylim()[0] < 0.025 < 2 < axes.get_ylim()[1]


def test_a_line_at_one_is_named_mpi():
    (axes,) = draw().axes
    (level,) = [line for line in axes.lines if list(line.get_ydata()) == [1, 1]]
    (name,) = [text for text in axes.texts if text.get_text() == MPI]
    assert name.xy[1] == 1 and name.get_color() == level.get_color() == GREY


@pytest.mark.parametrize("wide", [True, False])
def test_names_stand_beside_the_ends_of_their_lines_and_do_not_overlap(wide):
    names = [f"algorithm{number}" for number in range(9)]
    same = [record(name, size, 5.0 + place / 99) for place, name in enumerate(names) for size in (8, 1 << 20)]
    figure = draw(wide, a=document(records=same))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.texts} == {*names, MPI}
    assert all(text.xy[0] == 1 << 20 for text in axes.texts if text.get_text() != MPI)
    boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(boxes))
    assert all(axes.bbox.x1 < box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)


def test_only_the_few_best_are_in_color():
    best = [record("best", size, 1.0) for size in (8, 64)]
    others = [record(name, size, time) for name, time in (("slow", 5.0), ("slower", 6.0)) for size in (8, 64)]
    chosen = [record("auto", size, 2.0) for size in (8, 64)]
    (axes,) = draw(a=document(records=[*others, *best, *chosen])).axes
    drawn = lines(axes)
    assert [drawn[name].get_color() for name in ("best", "auto", "slow", "slower")] == [BLUE, INK, GREY, GREY]
    assert drawn["slow"].get_linewidth() < drawn["best"].get_linewidth()


def test_a_panel_for_each_file_with_the_same_scales():
    figure = draw(a=document(2), b=document(4, speed=10))
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["allreduce, a", "allreduce, b"]
    assert first.get_ylim() == second.get_ylim() and first.get_ylim()[1] > 20


def test_wrong_results_are_named_so():
    (axes,) = draw(a=document(records=[record("ring", size, 5.0, wrong=2) for size in (8, 64)])).axes
    assert "ring: WRONG" in {text.get_text() for text in axes.texts}


def test_nothing_to_compare_with_is_no_plot():
    alone = document(records=[record("ring", size, 5.0, native=None) for size in (8, 64)])
    once = document(records=[record("ring", 8, 5.0)])
    assert plots_of({"": alone}, "allreduce")[0] == plots_of({"": once}, "allreduce")[0] == []
