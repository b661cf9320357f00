"""Plots of measured and predicted times in the lessons: which lessons have them, their numbers, and missing records."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import predicted
from dots import RESULTS

LESSONS = Path(__file__).resolve().parents[2] / "docs/lessons"
PLOT = re.compile(r"^```\{predicted\} (.*)$", re.MULTILINE)
SERIES = predicted.SERIES["en"]


def plots(language):
    """Return the names in each plot of each lesson."""
    pages = sorted((LESSONS / language).glob("*.md"))
    return {page.name: [plot.split() for plot in PLOT.findall(page.read_text("utf-8"))] for page in pages}


NAMES = {name for plots in plots("en").values() for plot in plots for name in plot}


def steps(names, language="en"):
    files = sorted({f"{name.partition('.')[0]}.json" for name in names})
    folders = {title: RESULTS / f"train/steps-{library}-4" for title, library in predicted.LIBRARIES.items()}
    return [
        point
        for title, folder in folders.items()
        for point in predicted.steps([folder / file for file in files], folder / "network.json", title, language)
    ]


def test_each_lesson_but_the_plans_for_teachers_has_a_plot_in_both_languages():
    assert plots("en") == plots("zh")
    assert [page for page, found in plots("en").items() if not found] == ["teaching.md"]


@pytest.mark.parametrize("name", sorted(name for name in NAMES if "-" not in name))
def test_times_of_collectives_are_those_in_the_records(name):
    file = RESULTS / predicted.COLLECTIVES
    table = predicted.table([name], predicted.collectives(file), SERIES)
    found = [r for r in json.loads(file.read_text("utf-8"))["records"] if f"{r['primitive']}.{r['algorithm']}" == name]
    assert table.headings == ["measured / predicted", "64 KiB", "256 KiB", "1 MiB", "4 MiB"]
    assert table.rows == [[f"`{name}`", *(f"{r['median']:.1f} / {r['predicted']:.1f}" for r in found)]]


@pytest.mark.parametrize("name", sorted(name for name in NAMES if "-" in name))
def test_times_of_steps_are_those_in_the_records(name):
    table = predicted.table([name], steps([name]), SERIES)
    assert table.headings == ["measured / predicted", "MPICH", "Open MPI"]
    for cell, library in zip(table.rows[0][1:], predicted.LIBRARIES.values()):
        file, _, way = name.partition(".")
        record = json.loads((RESULTS / f"train/steps-{library}-4/{file}.json").read_text("utf-8"))
        if "record" in record:
            times = [each["step"] for each in record["record"]["ways"] if each["averaging"].startswith(way)]
        else:
            idle = [each["measured"] for each in record["records"] if each["schedule"] == way]
            times = [3 * record["options"]["ms"] * record["options"]["micro_batches"] / (1 - share) for share in idle]
        measured, simulated = map(float, cell.split(" / "))
        assert [measured] == [pytest.approx(time, abs=0.05) for time in times]
        assert 0.7 < simulated / measured < 1.1


@pytest.mark.parametrize("language, words", [("en", ["16 buckets", "overlapped"]), ("zh-CN", ["16 个桶", "重叠"])])
def test_labels_of_steps(language, words):
    names = ["overlap-256-16-512.hooks", "bubble-64.gpipe"]
    first, second = (row[0] for row in predicted.table(names, steps(names, language), SERIES).rows)
    assert [first[: len(words[0])], first[-len(words[1]) :]] == words
    assert second.startswith("gpipe") and second.endswith("64 KiB")


@pytest.mark.parametrize("name, points", [("allreduce.swing", None), ("bubble-64.dualpipe", ["bubble-64"])])
def test_a_name_without_a_record_is_an_error(name, points):
    points = steps(points) if points else predicted.collectives(RESULTS / predicted.COLLECTIVES)
    with pytest.raises(ValueError, match=re.escape(f"no record of {name!r}")):
        predicted.table([name], points, SERIES)
