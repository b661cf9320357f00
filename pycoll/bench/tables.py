"""Format records as a table like the output of nccl-tests, and as a summary."""

from __future__ import annotations

import argparse

from .curves import curves, ranges, variants
from .results import Columns, table

FRONT: Columns = {
    "bytes": ("size\n(B)", ""),
    "count": ("count\n(elements)", ""),
    "datatype": ("\ntype", ""),
    "op": ("\nredop", ""),
    "root": ("\nroot", ""),
    "algorithm": ("\nalgorithm", ""),
}
MEASURED: Columns = {
    "min": ("min\n(us)", ".2f"),
    "median": ("time\n(us)", ".2f"),
    "p99": ("p99\n(us)", ".2f"),
    "algbw": ("algbw\n(GB/s)", ".3f"),
    "busbw": ("busbw\n(GB/s)", ".3f"),
    "ratio": ("mpi /\ntime", ".2f"),
}
LIMIT: Columns = {"limit": ("time /\nlimit", ".2f")}
PLAIN: Columns = {"plain": ("time /\nplain", ".2f")}
WRONG: Columns = {"wrong": ("\n#wrong", "")}
OVERLAP: Columns = {"overlap": ("overlap\n(%)", ".0f")}
FASTEST: Columns = {
    "call": ("call", ""),
    "sizes": ("sizes", ""),
    "fastest": ("fastest algorithm of pycoll", ""),
    "ratio": ("speed relative to MPI", ""),
}
COPIED: Columns = {"copied": ("copied\n(B)", "")}


def nccl_table(records: list[dict], options: argparse.Namespace) -> str:
    """Return a table with a row for each size and algorithm, and out-of-place and in-place results side by side."""
    shown = {} if options.validate_only else MEASURED
    shown |= LIMIT if options.registered else {}
    shown |= PLAIN if options.op == "exact_sum" else {}
    shown |= OVERLAP if options.nonblocking else {}
    shown |= COPIED if options.device == "cuda" else {}
    shown |= WRONG if options.check or options.validate_only else {}
    in_place = any(record["place"] == "in" for record in records)
    columns = {**FRONT, **shown}
    if in_place:
        columns |= {f"{key} in place": (f"in place\n{heading}", form) for key, (heading, form) in shown.items()}
    rows: dict[tuple, dict] = {}
    for record in records:
        row = rows.setdefault(tuple(record[key] for key in FRONT), {key: record[key] for key in FRONT})
        row |= {key + (" in place" if record["place"] == "in" else ""): record[key] for key in shown}
    return table(list(rows.values()), columns)


def summary(records: list[dict]) -> str:
    """Return a table of the fastest algorithm in each range of sizes and its speed relative to MPI, by variant."""
    document = {"records": records}
    rows = [
        {"call": title, **row}
        for variant, title in variants([document]).items()
        for row in ranges(curves(document, variant))
    ]
    return table(rows, FASTEST)
