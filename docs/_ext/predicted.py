"""``{predicted} NAME...`` draws measured and predicted times in milliseconds; its content is the caption.

All names are of one kind:

- ``PRIMITIVE.ALGORITHM`` is a collective in a record of ``python -m pycoll.bench.predicted``: four hosts with links of
  100 Mbit/s, and a panel for each size.
- ``FILE.WAY`` is a training step on four such hosts, with a panel for each MPI library: a file that
  ``python -m pycoll.bench.train.predicted`` reads, and the first word of ``apart``, ``hooks alone`` or the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from pycoll.bench.train.predicted import compared
from pycoll.schedule.registry import PRIMITIVES
from pycoll.simulate.network import read
from pycoll.tune.options import size_label

from dots import Dots, Table  # isort: skip
from ratios import LIBRARIES  # isort: skip

COLLECTIVES = "predicted/mpich-cubic.json"
SERIES = {"en": ["measured", "predicted"], "zh-CN": ["实测", "预测"]}
STEPS = {
    "en": {"apart": "not overlapped", "hooks alone": "overlapped"},
    "zh-CN": {"apart": "不重叠", "hooks alone": "重叠", " buckets": " 个桶", " bucket": " 个桶", ", ": "，"},
}
Point = tuple[str, str, str, float, float]  # name, label, column, measured, predicted


def collectives(file: Path) -> Iterator[Point]:
    """Yield the points of a record of collectives."""
    for each in json.loads(file.read_text("utf-8"))["records"]:
        name = f"{each['primitive']}.{each['algorithm']}"
        yield name, f"`{name}`", size_label(each["bytes"]), each["median"], each["predicted"]


def steps(files: Iterable[Path], network: Path, column: str, language: str) -> Iterator[Point]:
    """Yield the points of files of training steps on a calibrated network."""
    for file in files:
        for record, step, predicted, measured, _ in compared(file, read(network)):
            _, size, way = step.split(", ")
            label = f"{size}, {way}" if way in STEPS[language] else f"{way}, {size}"
            for old, new in STEPS[language].items():
                label = label.replace(old, new)
            yield f"{record}.{way.split()[0]}", label, column, measured, predicted


def table(names: list[str], points: Iterable[Point], series: list[str]) -> Table:
    """Return a table with a row for each name; raise ValueError if a name has no record."""
    rows: dict[str, list[str]] = {name: [] for name in names}
    columns = []
    for name, label, column, measured, predicted in points:
        if name in rows:
            columns.append(column)
            rows[name] = [*(rows[name] or [label]), f"{measured:.1f} / {predicted:.1f}"]
    if missing := [name for name, row in rows.items() if not row]:
        raise ValueError(f"no record of {missing[0]!r}")
    return Table([" / ".join(series), *dict.fromkeys(columns)], [*rows.values()], series)


class Predicted(Dots):
    """A dot plot of measured and predicted times."""

    kind, one = "dots predicted", False

    def table(self, language: str) -> Table:
        """Return the times of the collectives or of the steps."""
        names = self.arguments[0].split()
        files = dict.fromkeys(name.partition(".")[0] for name in names)
        if PRIMITIVES.keys() & files:
            points = collectives(self.record(COLLECTIVES))
        else:
            points = chain.from_iterable(self.steps(files, title, language) for title in LIBRARIES)
        return table(names, points, SERIES[language])

    def steps(self, files: Iterable[str], title: str, language: str) -> Iterator[Point]:
        """Yield the points of an MPI library."""
        folder = f"train/steps-{LIBRARIES[title]}-4"
        paths = [self.record(f"{folder}/{file}.json") for file in files]
        return steps(paths, self.record(f"{folder}/network.json"), title, language)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("predicted", Predicted)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
