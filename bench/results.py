"""Results as tables, and on disk: JSON and CSV, written atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pycoll.base.files import write_atomically

FORMAT, VERSION = "pycoll bench", 1
Columns = Mapping[str, tuple[str, str]]  # of a record: key -> heading, number format


def table(records: list[dict], columns: Columns, style: str = "simple") -> str:
    """Records as a table; `columns` gives the heading and the number format of each key that is shown."""
    headings, formats = zip(*columns.values())
    rows = [[record.get(key) for key in columns] for record in records]
    return tabulate(rows, headings, floatfmt=formats, missingval="-", tablefmt=style)


def document(environment: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What goes into a JSON file, which `bench.report` reads."""
    return {"format": FORMAT, "version": VERSION, "environment": environment, "records": records}


def write_csv(path: str | Path, records: list[dict]) -> None:
    """Write the records, one a line, all with the same keys."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [])
    writer.writeheader()
    writer.writerows(records)
    write_atomically(Path(path), lambda file: file.write(text.getvalue().encode()))
