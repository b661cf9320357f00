"""``{predicted} PRIMITIVE.ALGORITHM...`` draws measured and simulated times; its content is the caption.

The times are from one of the records of ``python -m pycoll.bench.predicted``: four hosts with links of 100 Mbit/s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from pycoll.tune.options import size_label

from dots import Dots  # isort: skip
from languages import language_of  # isort: skip

RECORDS = Path(__file__).resolve().parents[2] / "bench/results/predicted/mpich-cubic.json"
WORDS = {"en": ("algorithm", ["measured", "predicted"]), "zh-CN": ("算法", ["实测", "预测"])}


def table(algorithms: list[str], title: str) -> list[str]:
    """Return a table with a row for each algorithm; raise ValueError if an algorithm has no record."""
    rows: dict[str, dict[int, str]] = {}
    for record in json.loads(RECORDS.read_text(encoding="utf-8"))["records"]:
        cells = rows.setdefault(f"{record['primitive']}.{record['algorithm']}", {})
        cells[record["bytes"]] = f"{record['median']:.1f} / {record['predicted']:.1f}"
    for name in algorithms:
        if name not in rows:
            raise ValueError(f"{RECORDS.name} has no record of {name!r}")
    columns = list(rows[algorithms[0]])
    lines = [[f"`{name}`", *(rows[name][column] for column in columns)] for name in algorithms]
    cells = [[title, *map(size_label, columns)], ["---"] * (len(columns) + 1), *lines]
    return [f"| {' | '.join(row)} |" for row in cells]


class Predicted(Dots):
    """A dot plot of measured and predicted times."""

    def run(self) -> list[nodes.Node]:
        """Return the figure, and its numbers in a fold."""
        self.env.note_dependency(str(RECORDS))
        title, series = WORDS[language_of(self.env.docname)]
        try:
            lines = table(self.arguments[0].split(), title)
        except ValueError as error:
            raise self.error(str(error)) from None
        self.arguments = [" ".join(self.content)]
        self.content, self.options = StringList(lines, self.env.docname), {"series": series}
        figure, *numbers = super().run()
        figure["classes"].append("predicted")
        return [figure, *numbers]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("predicted", Predicted)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
