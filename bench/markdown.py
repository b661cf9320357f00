"""Tables of a report, in Markdown.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from pycoll.tune.options import size_label

from .curves import MPI, Curves, Document, fastest, ranges, ratio, sizes_of


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; all columns but the first `left` are numbers."""
    aligned = ["left" if column < left else "right" for column in range(len(headings))]
    safe = [[" ".join(text.split()).replace("|", r"\|") for text in row] for row in rows]
    return tabulate(safe, headings, tablefmt="pipe", disable_numparse=True, colalign=aligned if safe else None)


def environments(named: Mapping[str, Document]) -> str:
    """A column for each file: where and with what it was measured."""

    def said(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)

    keys = dict.fromkeys(key for document in named.values() for key in document["environment"])
    rows = [[key, *(said(document["environment"].get(key)) for document in named.values())] for key in keys]
    return table(["", *named], rows, left=1 + len(named))


def number(value: float) -> str:
    """Three figures, and no more than are before the point."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def cell(found: Curves, name: str, size: int) -> str:
    """What the table says of an algorithm at a size."""
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
    """The fastest algorithm in each range of sizes."""
    rows = [[row["sizes"] or "-", row["fastest"], row["ratio"] or "-"] for row in ranges(found)]
    return (
        table(["sizes", "fastest algorithm of pycoll", "speed relative to MPI"], rows, left=2)
        if rows
        else "Nothing was timed."
    )


def by_algorithm(found: Curves) -> str:
    """Times and ratios of one way to call a primitive: a row for each size, MPI first, a column for each algorithm."""
    names = sorted(found, key=lambda name: name != MPI)
    rows = [[size_label(size), *(cell(found, name, size) for name in names)] for size in sizes_of(found)]
    return table(["size", *names], rows)


def before_after(before: Curves, after: Curves) -> str:
    """How many times faster the second is, and both medians: sizes down, algorithms across."""

    def change(name: str, size: int) -> str:
        old, new = (found[name].get(size, {}).get("median") for found in (before, after))
        return f"{old / new:.2f} ({number(old)} → {number(new)})" if old and new else "-"

    names = [name for name in before if name in after]
    sizes = [size for size in sizes_of(before) if size in sizes_of(after)]
    return table(["size", *names], [[size_label(size), *(change(name, size) for name in names)] for size in sizes])
