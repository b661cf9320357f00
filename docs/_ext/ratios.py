"""``{ratios} RECORD`` draws ratios that a benchmark wrote to ``bench/results``; its content is the caption.

The ratios in ``RECORD-mpich.json`` and ``RECORD-openmpi.json`` are drawn in pairs, with a row for each call.

- ``:rows: PATTERN`` draws the rows whose whole names match a regular expression.
- ``:columns: 8 B, 1 MiB`` draws these sizes.

``RECORD.md`` has tables of ratios, which are drawn as they are.

- ``:table: 1`` draws the second table.
- ``:names: 2`` makes the names of the rows from the first two columns.
- ``:undrawn: COLUMN`` does not draw a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

from docutils.parsers.rst import directives
from sphinx.application import Sphinx

from pycoll.bench.markdown import number
from pycoll.tune.options import size_label

from dots import Dots, Table  # isort: skip

LIBRARIES = {"MPICH": "mpich", "Open MPI": "openmpi"}
STEP = re.compile(r"\w+_(mlp|transformer)")
CHINESE = {"ratio of the minima": "最小值之比", "step": "训练步"}
Record = dict[str, Any]


def ratios(record: Record) -> dict[str, float]:
    """Return the ratios in a record, by the names of their rows."""
    if "call" not in record:
        return {record["algorithm"] + ", in place" * (record["place"] == "in"): record["ratio"]}
    if "mpi_comm" in record:
        return {record["call"]: record["mpi_comm"]}
    minima = record["gloo_min"] / record["pycoll_min"]
    return {record["call"]: record["ratio"], f"{record['call']}, ratio of the minima": minima}


def column(record: Record) -> str:
    """Return the heading of a record: a training step, or a size (a barrier is with the smallest ones)."""
    return "step" if STEP.fullmatch(record.get("call", "")) else size_label(record["bytes"] or 8)


def paired(documents: Sequence[Sequence[Record]], rows: str = ".*", columns: Sequence[str] = ()) -> Table:
    """Return a table of ratios, with a number of each document in a cell; raise ValueError if one is missing."""
    cells: dict[str, dict[str, list[str]]] = {}
    for record in chain(*documents):
        for name, ratio in ratios(record).items():
            if re.fullmatch(rows, name) and (not columns or column(record) in columns):
                cells.setdefault(name, {}).setdefault(column(record), []).append(number(ratio))
    found = {title for row in cells.values() for title in row}
    titles = columns or [title for title in dict.fromkeys(map(column, chain(*documents))) if title in found]
    if not found or found < {*titles}:
        raise ValueError(f"no ratio of {rows!r} under {', '.join({*titles} - found) or 'any column'}")
    for name, row in cells.items():
        for title in row:
            if len(row[title]) != len(documents):
                raise ValueError(f"{name}, {title}: {len(row[title])} ratios in {len(documents)} records")
    lines = [[name, *(" / ".join(row.get(title, ())) for title in titles)] for name, row in cells.items()]
    return Table([" / ".join(LIBRARIES), *titles], lines, [*LIBRARIES])


def printed(text: str, number: int) -> list[list[str]]:
    """Return the cells of a table in a text, with the headings; raise ValueError if there are not so many tables."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    if number >= len(tables):
        raise ValueError(f"{len(tables)} tables in the record, but not a table {number}")
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in tables[number].splitlines())
    return [head, *rows]


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


class Ratios(Dots):
    """A dot plot of ratios."""

    option_spec: ClassVar[dict[str, Any]] = {
        "rows": directives.unchanged_required,
        "columns": _listed,
        "table": directives.nonnegative_int,
        "names": directives.positive_int,
        "undrawn": directives.unchanged_required,
    }

    def table(self, language: str) -> Table:
        """Return the ratios in the record."""
        name, options = self.arguments[0], dict(self.options)
        if "table" in options:
            head, *rows = printed(self.record(f"{name}.md").read_text("utf-8"), options.pop("table"))
            return Table(head, rows, **options)
        files = [self.record(f"{name}-{library}.json") for library in LIBRARIES.values()]
        table = paired([json.loads(file.read_text("utf-8"))["records"] for file in files], **options)
        comma, words = (", ", {}) if language == "en" else ("，", CHINESE)
        for row in table.rows:
            call, *more = row[0].split(", ")
            row[0] = comma.join([f"`{call}`", *(words.get(each, each) for each in more)])
        return table._replace(headings=[words.get(each, each) for each in table.headings])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("ratios", Ratios)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
