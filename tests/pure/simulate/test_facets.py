"""Panels of simulated times."""

import pytest

pytest.importorskip("matplotlib")

from pycoll.base.figures import BLUE, GREY, INK, ORANGE
from pycoll.simulate.crossings import crossings
from pycoll.simulate.facets import View, drawn

SIZES = [1, 4, 16, 64]
CURVES = {"latency": [1.0, 1.0, 1.0, 64.0], "bandwidth": [8.0, 4.0, 0.25, 0.25], "slow": [9.0, 9.0, 9.0, 99.0]}


def view(curves, sizes=SIZES):
    return View("title", "bytes", "{} B".format, sizes, curves, crossings(sizes, curves))


def lines(axes, color):
    return [list(line.get_ydata()) for line in axes.lines if line.get_color() == color and len(line.get_ydata()) > 1]


def test_a_panel_for_each_algorithm_with_the_fastest_time_beside_it():
    panels = drawn([view(CURVES), view(CURVES)]).axes
    assert [axes.get_title("left") for axes in panels] == [*CURVES] * 2
    assert len({axes.get_ylim() for axes in panels}) == 1
    for axes, color in zip(panels, (BLUE, BLUE, INK)):
        assert lines(axes, GREY) == [[1.0, 1.0, 0.25, 0.25]]
        assert CURVES[axes.get_title("left")] in lines(axes, color)


def test_dots_where_an_algorithm_is_the_fastest():
    latency, bandwidth, slow = drawn([view(CURVES)]).axes
    dots = [[list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"] for axes in (latency, slow)]
    assert dots == [[[1, 4]], []]
    (circle,) = [line for line in bandwidth.lines if line.get_markeredgecolor() == ORANGE]
    assert circle.get_xdata() == pytest.approx([8.0])
    assert "4 B to 16 B" in [text.get_text() for text in bandwidth.texts]


def test_the_grey_line_is_named_once_where_there_is_room():
    panels = drawn([view(CURVES)]).axes
    named = [
        (axes.get_title("left"), text.xy) for axes in panels for text in axes.texts if text.get_text() == "fastest"
    ]
    assert named == [("bandwidth", (1, 1.0))]  # the first algorithm with room above the line
    (alone,) = drawn([view({"ring": [1.0, 2.0, 3.0, 4.0]})]).axes
    assert not alone.texts


@pytest.mark.parametrize("last", [1.0, 1.01, 1.2, 2.0, 5.0, 9.0, 20.0, 1e6])
def test_at_least_two_times_have_labels(last):
    (axes,) = drawn([view({"ring": [1.05e-6, last * 1.05e-6]}, [2, 4])]).axes
    low, high = axes.get_ylim()
    ticks = axes.yaxis.get_majorticklocs()
    labels = axes.yaxis.get_major_formatter().format_ticks(ticks)
    assert sum(low <= tick <= high and bool(text) for tick, text in zip(ticks, labels)) >= 2
    assert not any("mathdefault" in text for text in labels)
