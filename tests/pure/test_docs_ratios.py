"""Plots of ratios in the guide: they show the records, and an error says which ratio or record is missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import dots
import ratios

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```\{ratios\} (.*)\n((?::.*\n)*)", re.MULTILINE)
PAGES = {"benchmarks": 3, "pytorch": 4, "registered": 1, "topologies": 3, "zh/pytorch": 4}
MPICH = [{"call": "Bcast", "bytes": 8, "mpi_comm": 2.0}, {"call": "Barrier", "bytes": 0, "mpi_comm": 4.567}]
OPEN_MPI = [{"call": "Bcast", "bytes": 8, "mpi_comm": 1.5}, {"call": "Barrier", "bytes": 0, "mpi_comm": 12.34}]


def plots(page):
    """Return the record and the options of each plot in a page."""
    text = (ROOT / f"docs/guide/{page}.md").read_text(encoding="utf-8")
    return [(name, dict(re.findall(r"^:(\w+): (.*)$", head, re.MULTILINE))) for name, head in BLOCK.findall(text)]


def records(name):
    return [json.loads(path.read_text("utf-8"))["records"] for path in sorted(dots.RESULTS.glob(f"{name}-*.json"))]


def test_a_cell_has_a_number_of_each_record():
    table = ratios.paired([MPICH, OPEN_MPI])
    assert table.headings == ["MPICH / Open MPI", "8 B"]
    assert table.rows == [["Bcast", "2.00 / 1.50"], ["Barrier", "4.57 / 12.3"]]


@pytest.mark.parametrize(
    "second, options, problem",
    [
        (OPEN_MPI[:1], {}, "Barrier, 8 B: 1 ratios in 2 records"),
        (OPEN_MPI, {"rows": "Bcast", "columns": ["8 B", "1 MiB"]}, "no ratio of 'Bcast' under 1 MiB"),
        (OPEN_MPI, {"rows": "bcast"}, "no ratio of 'bcast' under any column"),
    ],
)
def test_a_missing_ratio_is_an_error(second, options, problem):
    with pytest.raises(ValueError, match=problem):
        ratios.paired([MPICH, second], **options)


def test_a_missing_table_is_an_error():
    text = "| a |\n|---|\n| 1 |\n\n| b |\n|---|\n| 2 |\n"
    assert ratios.printed(text, 1) == [["b"], ["2"]]
    with pytest.raises(ValueError, match="2 tables in the record, but not a table 2"):
        ratios.printed(text, 2)


@pytest.mark.parametrize("page", PAGES)
def test_all_plots_have_records(page):
    found = plots(page)
    assert len(found) == PAGES[page]
    for name, options in found:
        if "table" in options:
            head, *rows = ratios.printed((dots.RESULTS / f"{name}.md").read_text("utf-8"), int(options["table"]))
            assert options["undrawn"] in head and len(rows) > 10
        else:
            columns = [each.strip() for each in options.get("columns", "").split(",") if each]
            assert ratios.paired(records(name), options.get("rows", ".*"), columns).rows


def test_rows_are_chosen_by_their_names():
    def names(page, plot):
        name, options = plots(page)[plot]
        return [row[0] for row in ratios.paired(records(name), options["rows"]).rows]

    assert {"Allreduce", "Allreduce IN_PLACE", "Barrier"} < {*names("benchmarks", 0)}
    assert {"Allreduce ring", "Reduce_scatter_block tree"} < {*names("benchmarks", 1)}
    assert not {*names("benchmarks", 0)} & {*names("benchmarks", 1)}
    assert names("benchmarks", 2) == ["ring", "recursive_doubling", "ring, in place", "recursive_doubling, in place"]
    assert "Allgatherv" in names("registered", 0) and "Gatherv" not in names("registered", 0)


def test_the_median_and_the_minimum_of_gloo():
    for call, *cells in ratios.paired(records("torch/host-2"), "all_reduce.*", ["64 KiB"]).rows:
        found = [each for record in records("torch/host-2") for each in record if each["call"] == "all_reduce"]
        times = [each for each in found if each["bytes"] == 65536]
        if "minima" in call:
            expected = [each["gloo_min"] / each["pycoll_min"] for each in times]
        else:
            expected = [each["ratio"] for each in times]
        assert cells == [" / ".join(f"{ratio:.2f}" for ratio in expected)]


def test_the_build_draws_a_record_and_fails_without_it(tmp_path):
    extensions = 'extensions = ["myst_parser", "ratios"]\n'
    (tmp_path / "conf.py").write_text(f"import sys\nsys.path[:0] = {sys.path!r}\n{extensions}")
    build = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(tmp_path), str(tmp_path / "site")]
    text = "# Title\n\n```{ratios} core/calls-2\n:rows: Allreduce\nThe *caption*.\n```\n"
    (tmp_path / "index.md").write_text(text.replace("calls", "cells"))
    failed = subprocess.run(build, capture_output=True, text=True, timeout=120)
    assert failed.returncode and "core/cells-2-mpich.json" in failed.stderr
    (tmp_path / "index.md").write_text(text)
    subprocess.run(build, check=True, timeout=120)
    page = (tmp_path / "site/index.html").read_text()
    first = records("core/calls-2")[0][0]
    assert page.count("<circle") == 10 and "The <em>caption</em>." in page
    assert f"Allreduce, 8 B, MPICH: {first['mpi_comm']:.2f}</title>" in page
    assert re.search(rf"<details .*?>{first['mpi_comm']:.2f} / .*?</details>", page, re.DOTALL)
