"""The plots of a result file."""

import pytest

pytest.importorskip("matplotlib")


from pycoll.bench.plots.document import draw, plots_of

from ..documents import document, record


def test_a_plot_of_times_for_each_place_and_file():
    both = document(records=[record("ring", size, 5.0, place=place) for place in ("out", "in") for size in (8, 64)])
    _, times = plots_of({"a": both, "b": both}, "allreduce")
    says = [plot.says.partition(":")[0] for plot in times.values()]
    assert says == [f"allreduce, {place}, {label}" for place in ("out of place", "in place") for label in "ab"]
    assert len({plot.name for plot in times.values()}) == 4


def test_one_color_for_an_algorithm_in_all_plots():
    (speeds,), times = plots_of({"a": document(), "b": document(speed=2)}, "allreduce")
    figures = [plot.draw(wide=True) for plot in times.values()]
    in_times = {axes.get_title("left"): axes.lines[-1].get_color() for figure in figures for axes in figure.axes}
    for axes in speeds.draw(wide=True).axes:
        colors = {line.get_label(): line.get_color() for line in axes.lines}
        assert [colors[name] for name in ("tree", "ring")] == [in_times[name] for name in ("tree", "ring")]


def test_draw_writes_all_plots_as_one_image(tmp_path):
    content = document(records=[*document()["records"], record("dissemination", 0, 3.0, "barrier", busbw=None)])
    draw(content, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    draw(content, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert text.count("Speed relative to MPI") == 1
    assert ">allreduce: median time (line), minimum to 99th percentile (band)<" in text
    assert ">barrier: median time (dot), minimum to 99th percentile (bar)<" in text
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_timed_is_said(tmp_path):
    draw(document(records=[record("tree", 8, None, native=None)]), tmp_path / "plot.svg")
    assert "Nothing was timed." in (tmp_path / "plot.svg").read_text()
