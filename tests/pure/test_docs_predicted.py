"""Plots of measured and predicted times in the lessons: their numbers, and an algorithm that was not measured."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import dots
import predicted

LESSONS = Path(__file__).resolve().parents[2] / "docs/lessons"
PLOT = re.compile(r"^```\{predicted\} (.*)$", re.MULTILINE)


def test_each_language_has_the_same_plots_and_they_show_the_records():
    records = json.loads(predicted.RECORDS.read_text(encoding="utf-8"))["records"]
    plots = {name: PLOT.findall((LESSONS / "en" / name).read_text(encoding="utf-8")) for name in _lessons("en")}
    assert plots == {name: PLOT.findall((LESSONS / "zh" / name).read_text(encoding="utf-8")) for name in _lessons("zh")}
    for names in (plot.split() for found in plots.values() for plot in found):
        table = dots.read("lesson.md", predicted.table(names, "algorithm"), numbers=2)
        for name in names:
            times = [(r["median"], r["predicted"]) for r in records if f"{r['primitive']}.{r['algorithm']}" == name]
            assert [[f"{each:.1f}" for each in pair] for pair in times] == table.rows[name], name


def _lessons(language):
    return sorted(path.name for path in (LESSONS / language).glob("*.md"))


def test_an_algorithm_without_a_record_is_an_error():
    with pytest.raises(ValueError, match=r"no record of 'allreduce\.swing'"):
        predicted.table(["allreduce.ring", "allreduce.swing"], "algorithm")
