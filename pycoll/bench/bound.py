"""Compare results with the bound of the network links: ``python -m pycoll.bench.bound --rate 100M RESULTS.json ...``.

The bound is the time in which the bytes that must leave, or enter, each host cross its full-duplex link.  It counts
only data bytes; TCP framing adds 4.6% (on Ethernet with frames of 1500 bytes).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pycoll.base.command_line import Parser

from .report import Refused, load
from .results import table

COLUMNS = {
    "file": ("file", ""),
    "primitive": ("primitive", ""),
    "bytes": ("bytes", ""),
    "algorithm": ("algorithm", ""),
    "time": ("time (ms)", ".1f"),
    "times": ("time / bound", ".3f"),
}


def crossing(primitive: str, hosts: int) -> float | None:
    """Return the share of the vector (the blocks of all ranks) that must cross the link of a host; None if unknown.

    Each host has the same number of ranks.  All blocks except those of the host itself must enter the host (all-gather)
    or leave it (reduce-scatter); all-reduce combines both.
    """
    share = (hosts - 1) / hosts
    return {"allgather": share, "reduce_scatter": share, "allreduce": 2 * share, "bcast": 1.0}.get(primitive)


def rate(text: str) -> float:
    """Parse a rate, for example ``100M`` or ``10G``, and return bits per second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([MG])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate, for example 100M or 10G")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]]


def compared(path: Path, bits_per_second: float) -> list[dict]:
    """Return the records of a file for which the bound is known, compared with it."""
    document, rows = load(path), []
    hosts = len(document["environment"]["hosts"])
    for record in document["records"]:
        share = crossing(record["primitive"], hosts)
        if share and record["median"]:
            bound = share * record["bytes"] * 8 / bits_per_second
            seconds = record["median"] * 1e-6
            rows.append({**record, "file": path.name, "time": seconds * 1e3, "times": seconds / bound})
    return rows


def main(argv: list[str]) -> None:
    """Read the result files, and print the comparison."""
    parser = Parser(prog="python -m pycoll.bench.bound", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files of `python -m pycoll.bench --json`")
    parser.add_argument("--rate", type=rate, required=True, help="bits per second of the link of each host: 100M, 10G")
    options = parser.parse_args(argv)
    try:
        rows = [row for path in options.results for row in compared(path, options.rate)]
    except Refused as error:
        parser.error(str(error))
    print(table(rows, COLUMNS))


if __name__ == "__main__":
    main(sys.argv[1:])
