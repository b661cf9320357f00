"""Plots of the speed of calls relative to another library."""

import json

import pytest

pytest.importorskip("matplotlib")


from pycoll.base.figures import GREY
from pycoll.bench.plots.calls import COLORS, plot
from pycoll.bench.plots.command import main

from ..documents import document

SIZES = (8, 1 << 20)


def calls(*names, ratios=(4.0, 0.5), **environment):
    records = [{"call": name, "bytes": size, "mpi_comm": ratio} for name in names for size, ratio in zip(SIZES, ratios)]
    return document(records=records, **environment)


def lines(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_color() != GREY}


def test_a_panel_for_each_file_with_the_same_scales():
    first, second = plot([calls("Bcast", mpi="MPICH 5"), calls("Bcast", mpi="Open MPI 5", ratios=(16.0, 2.0))]).axes
    assert [axes.get_title("left") for axes in (first, second)] == ["MPICH 5, 4 ranks", "Open MPI 5, 4 ranks"]
    assert lines(first) == {"Bcast": [4.0, 0.5]} and lines(second) == {"Bcast": [16.0, 2.0]}
    assert first.get_ylim() == second.get_ylim() and first.get_ylabel() == "MPI / pycoll"


def test_a_line_at_one_and_a_name_at_the_end_of_each_line():
    (axes,) = plot([calls("Bcast", "Scan")]).axes
    assert [list(line.get_ydata()) for line in axes.lines if line.get_color() == GREY] == [[1, 1]]
    assert {text.get_text(): (text.xy, text.get_color()) for text in axes.texts} == {
        "Bcast": ((1 << 20, 0.5), COLORS[0]),
        "Scan": ((1 << 20, 0.5), COLORS[1]),
    }


def test_some_calls_are_selected():
    (axes,) = plot([calls("Bcast", "Scan", "Reduce")], ["Reduce", "Bcast"]).axes
    assert set(lines(axes)) == {"Reduce", "Bcast"}


@pytest.mark.parametrize(
    "content, options, problem",
    [
        (calls(*"abcdef"), (), "a plot shows 1 to 5 calls at several sizes, not 6; see --calls"),
        (calls("Bcast"), ("--calls", "Bcast,Scan"), "not measured at two sizes: Scan"),
        (document(), (), "the files are not results of pycoll.bench.calls --json"),
        ({"records": [{"call": "Bcast", "mpi_comm": 1.0}]}, (), "they have no 'bytes'"),
    ],
)
def test_what_cannot_be_plotted_is_said(tmp_path, capsys, content, options, problem):
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        main(plot, "calls", "", [str(tmp_path / "results.json"), "-o", str(tmp_path / "plot.svg"), *options])
    assert problem in capsys.readouterr().err and not (tmp_path / "plot.svg").exists()


def test_the_command_writes_the_plot(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(calls("Bcast")))
    main(plot, "calls", "", [str(tmp_path / "results.json"), "-o", str(tmp_path / "plot.svg")])
    assert ">Bcast<" in (tmp_path / "plot.svg").read_text()
