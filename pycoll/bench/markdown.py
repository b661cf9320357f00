"""Tables of a report, in Markdown.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from pycoll.tune.options import size_label

from .curves import MPI, Curves, Document, fastest, ranges, ratio, sizes_of

NAMES = {"mpi": "MPI", "python": "Python", "numpy": "NumPy", "cpu": "CPU", "gpu": "GPU", "cupy": "CuPy", "cuda": "CUDA"}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a table in Markdown; all columns except the first `left` are right-aligned."""
    aligned = ["left" if column < left else "right" for column in range(len(headings))]
    safe = [[" ".join(text.split()).replace("|", r"\|") for text in row] for row in rows]
    return tabulate(safe, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned if safe else None)


def environments(named: Mapping[str, Document]) -> str:
    """Return a table of the environments in which the files were measured, one column for each file."""

    def said(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)

    keys = dict.fromkeys(key for document in named.values() for key in document["environment"])
    rows = [
        [NAMES.get(key, key), *(said(document["environment"].get(key)) for document in named.values())] for key in keys
    ]
    return table(["", *named], rows, left=1 + len(named))


def number(value: float) -> str:
    """Format a number with three significant digits, or with all digits of its integer part if these are more."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def cell(found: Curves, name: str, size: int) -> str:
    """Return the table cell for an algorithm at a size."""
    record = found.get(name, {}).get(size)
    if record is None or (record["median"] is None and record.get("wrong") is None):
        return "-"
    against = ratio(found, name, size)
    text = number(record["median"]) if record["median"] else "ok"
    text += f" ({against:.2f})" if against else ""
    if record.get("wrong"):
        return f"WRONG {text}" if record["median"] else "WRONG"
    return f"★ {text}" if fastest(found, size, found) == name else text


def fastest_by_size(found: Curves) -> str:
    """Return a table of the fastest algorithm in each range of sizes."""
    rows = [[row["sizes"] or "-", row["fastest"], row["ratio"] or "-"] for row in ranges(found)]
    return (
        table(["size", "fastest algorithm of pycoll", "speed relative to MPI"], rows, left=2)
        if rows
        else "Nothing was timed."
    )


def by_algorithm(found: Curves) -> str:
    """Return a table of times and ratios, with a row for each size and a column for each algorithm, MPI first."""
    names = sorted(found, key=lambda name: name != MPI)
    rows = [[size_label(size), *(cell(found, name, size) for name in names)] for size in sizes_of(found)]
    return table(["size", *names], rows)


def before_after(before: Curves, after: Curves) -> str:
    """Return a table of speedups and both medians, with a row for each size and a column for each algorithm."""

    def change(name: str, size: int) -> str:
        old, new = (found[name].get(size, {}).get("median") for found in (before, after))
        return f"{old / new:.2f} ({number(old)} → {number(new)})" if old and new else "-"

    names = [name for name in before if name in after]
    sizes = [size for size in sizes_of(before) if size in sizes_of(after)]
    return table(["size", *names], [[size_label(size), *(change(name, size) for name in names)] for size in sizes])
