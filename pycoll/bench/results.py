"""Format results as tables, and write them to JSON and CSV files atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pycoll.base.command_line import say_written
from pycoll.base.files import write_json, write_text

FORMAT, VERSION = "pycoll bench", 1
Columns = Mapping[str, tuple[str, str]]  # key of a record -> heading, number format


def table(records: list[dict], columns: Columns, style: str = "simple") -> str:
    """Format records as a table; `columns` has the heading and the number format of each key to show."""
    headings, formats = zip(*columns.values())
    rows = [[record.get(key) for key in columns] for record in records]
    return tabulate(rows, headings, floatfmt=formats, missingval="-", tablefmt=style)


def document(environment: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a JSON file for `pycoll.bench.report`."""
    return {"format": FORMAT, "version": VERSION, "environment": environment, "records": records}


def write_csv(path: str | Path, records: list[dict]) -> None:
    """Write the records, one per line; all have the same keys."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [])
    writer.writeheader()
    writer.writerows(records)
    write_text(path, text.getvalue())


def write_results(path: str | Path | None, content: object) -> None:
    """Write results as JSON, and print where; do nothing without a path."""
    if path:
        write_json(path, content)
        say_written(path)
