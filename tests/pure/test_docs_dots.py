"""Dot plots in the guide: what they draw, errors in their tables, and the records that the numbers come from."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import dots

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results"
BOTH = ["MPICH", "Open MPI"]
HEAD = ["| call | 8 B | 1 MiB |", "|---|---|---|"]
BLOCK = re.compile(r"^:::\{dots\} .*\n((?::.*\n)*)\n((?:\|.*\n)+):::$", re.MULTILINE)


def tables(page):
    """Return the options and the table of each plot in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for head, body in BLOCK.findall(text):
        options = dict(re.findall(r"^:(\w+): (.*)$", head, re.MULTILINE))
        series = options.pop("series").split(", ") if "series" in options else []
        names = int(options.pop("names", 1))
        found.append((series, dots.read(page, body.splitlines(), len(series) or 1, names, **options)))
    assert len(found) == text.count(":::{dots}")
    return found


@pytest.mark.parametrize(
    "row, problem",
    [
        ("| Bcast | 1.0 | fast |", "guide.md, row 'Bcast': 'fast' under '1 MiB' is not 1 positive number"),
        ("| Bcast | 0 | 1.0 |", "guide.md, row 'Bcast': '0' under '8 B' is not 1 positive number"),
        ("| Bcast | 1.0 / 2.0 | 1.0 |", "guide.md, row 'Bcast': '1.0 / 2.0' under '8 B' is not 1 positive number"),
        ("| Bcast | 1.0 |", "guide.md, row 'Bcast': 2 cells, but 3 columns"),
        ("| Scan | 1.0 | 2.0 |", "guide.md, row 'Scan': two rows have this name"),
    ],
)
def test_an_error_names_the_page_and_the_row(row, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        dots.read("guide.md", [*HEAD, "| Scan | 3.0 | 2.0 |", row])


def test_a_pair_needs_two_numbers():
    with pytest.raises(ValueError, match=r"row 'Scan': '3.0' under '8 B' is not 2 positive numbers"):
        dots.read("guide.md", [*HEAD, "| Scan | 3.0 | 2.0 / 1.0 |"], numbers=2)


def test_a_plot_without_a_table_is_an_error():
    with pytest.raises(ValueError, match=r"^guide.md: a dot plot needs a table$"):
        dots.read("guide.md", ["", "text"])


def test_names_come_from_several_columns_and_a_column_is_left_out():
    table = dots.read("guide.md", [*HEAD, "| `Scan` | 3.0 | 2.0 |"], names=2)
    assert table == (["1 MiB"], {"Scan, 3.0": [["2.0"]]})
    table = dots.read("guide.md", [*HEAD, "| `Scan` | slow | 2.0 |"], without="8 B")
    assert table == (["1 MiB"], {"Scan": [["2.0"]]})


def test_positions_are_logarithmic_and_the_axis_contains_1():
    scale = dots.Scale([2.0, 4.0, 16.0])
    assert scale(4.0) - scale(2.0) == pytest.approx(scale(2.0) - scale(1.0))
    assert scale(1.0) == dots.MARGIN and scale(16.0) == 100 - dots.MARGIN
    assert scale.ticks == [1, 2, 5, 10] and dots.Scale([0.1, 50.0]).ticks == [0.1, 1, 10]


def test_an_empty_cell_has_no_dot():
    table = dots.read("guide.md", [*HEAD, "| Barrier | 3.0 / 2.0 | |"], numbers=2)
    assert dots.plot(table, BOTH).count("<circle") == 2


PAGES = ["benchmarks", "pytorch", "registered", "topologies", "zh/pytorch"]


@pytest.mark.parametrize("page", PAGES)
def test_each_number_of_a_table_has_a_dot(page):
    for series, table in tables(f"docs/guide/{page}.md"):
        drawn = re.findall("<circle.*?<title>(.*?)</title>", dots.plot(table, series))
        assert len(drawn) == len(table.values) > 30
        for name, cells in table.rows.items():
            for column, cell in zip(table.columns, cells):
                for number, text in enumerate(cell):
                    assert f"{name}, {column}{f', {series[number]}' if series else ''}: {text}" in drawn


def records(*files):
    """Return the records of files by call and size, as in a table."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
    found = [json.loads((RESULTS / file).read_text(encoding="utf-8"))["records"] for file in files]

    def cells(call, size):
        number, unit = size.split()
        nbytes = int(number) * units[unit]
        return [record for each in found for record in each if (record["call"], record["bytes"] or 8) == (call, nbytes)]

    return cells


@pytest.mark.parametrize(
    "page, index, files, key, digits",
    [
        ("registered", 0, "core/registered-calls-2", "mpi_comm", ".2f"),
        ("benchmarks", 0, "core/calls-2", "mpi_comm", ".2f"),
        ("benchmarks", 1, "core/calls-2", "mpi_comm", ".2f"),
        ("pytorch", 0, "torch/host-2", "ratio", "#.2g"),
        ("pytorch", 1, "torch/network-4", "ratio", "#.2g"),
    ],
)
def test_the_numbers_are_those_in_the_records(page, index, files, key, digits):
    _, table = tables(f"docs/guide/{page}.md")[index]
    cells = records(f"{files}-mpich.json", f"{files}-openmpi.json")
    for name, row in table.rows.items():
        call, _, minima = name.partition(", ratio of the ")
        for size, cell in zip(table.columns, row):
            found = [each["gloo_min"] / each["pycoll_min"] if minima else each[key] for each in cells(call, size)]
            assert [f"{ratio:{digits}}".rstrip(".") for ratio in found] == cell, (name, size)


def test_a_wrong_row_fails_the_build(tmp_path):
    extensions = 'extensions = ["myst_parser", "dots"]\nmyst_enable_extensions = ["colon_fence"]\n'
    (tmp_path / "conf.py").write_text(f"import sys\nsys.path[:0] = {sys.path!r}\n{extensions}")
    table = "\n".join([":::{dots} The caption.", "", *HEAD, "| Bcast | 2.0 | 1.5 |", ":::", ""])
    build = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(tmp_path), str(tmp_path / "site")]
    (tmp_path / "index.md").write_text("# Title\n\n" + table.replace("1.5", "fast"))
    failed = subprocess.run(build, capture_output=True, text=True, timeout=120)
    assert failed.returncode and "index.md, row 'Bcast': 'fast' under '1 MiB'" in failed.stderr
    (tmp_path / "index.md").write_text("# Title\n\n" + table)
    subprocess.run(build, check=True, timeout=120)
    page = (tmp_path / "site/index.html").read_text()
    assert page.count("<circle") == 2 and "The caption." in page
    assert re.search(r"<details .*?<td><p>1.5</p></td>.*?</details>", page, re.DOTALL)
