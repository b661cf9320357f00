"""Plots of the times of two backends."""

import json

import pytest

pytest.importorskip("matplotlib")

from pycoll.bench.plots.backends import COLORS, plot
from pycoll.bench.plots.command import main

from ..documents import document

SIZES = (8, 1024, 1 << 20)
TIMES = {"pycoll": (10.0, 20.0, 500.0), "gloo": (30.0, 200.0, 600.0)}


def record(call, number):
    times = {name: medians[number] for name, medians in TIMES.items()}
    least = {f"{name}_min": time / 2 for name, time in times.items()}
    most = {f"{name}_p99": time * 3 for name, time in times.items()}
    return {"call": call, "bytes": SIZES[number], **times, **least, **most}


def torch(*calls, **environment):
    records = [record(call, number) for call in calls for number in range(3)]
    return document(records=[*records, record("ddp_mlp", 2)], **environment)


def test_a_row_for_each_file_and_a_panel_for_each_collective():
    panels = plot([torch("all_reduce", "broadcast", mpi="MPICH 5"), torch("broadcast", mpi="Open MPI 5")]).axes
    shown = [axes for axes in panels if axes.get_visible()]
    assert [axes.get_title("left") for axes in shown] == ["all_reduce", "broadcast", "broadcast"]
    assert [axes.get_ylabel().split("\n")[0] for axes in shown] == ["MPICH 5", "", "Open MPI 5"]
    assert len({axes.get_ylim() for axes in shown}) == 1


def test_a_line_at_the_median_and_a_band_from_the_minimum_to_the_99th_percentile():
    (axes,) = plot([torch("all_reduce")]).axes
    assert {line.get_color(): tuple(line.get_ydata()) for line in axes.lines} == {
        COLORS[name]: medians for name, medians in TIMES.items()
    }
    edges = [{y for _, y in band.get_paths()[0].vertices} for band in axes.collections]
    assert edges == [{edge for time in medians for edge in (time / 2, time * 3)} for medians in TIMES.values()]


def test_each_line_is_named_where_they_are_furthest_apart():
    (axes,) = plot([torch("all_reduce")]).axes
    assert {text.get_text(): (text.xy, text.get_color()) for text in axes.texts} == {
        name: ((1024, TIMES[name][1]), COLORS[name]) for name in TIMES
    }


@pytest.mark.parametrize(
    "content, options, problem",
    [
        (document(), (), "the files are not results of pycoll.bench.torch --json"),
        (torch(), (), "no collective was measured at two sizes"),
        (torch("broadcast"), ("--calls", "broadcast,all_reduce"), "not measured at two sizes: all_reduce"),
    ],
)
def test_what_cannot_be_plotted_is_said(tmp_path, capsys, content, options, problem):
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        main(plot, "backends", "", [str(tmp_path / "results.json"), "-o", str(tmp_path / "plot.svg"), *options])
    assert problem in capsys.readouterr().err and not (tmp_path / "plot.svg").exists()
