"""Summarises a trace: where time was spent, which ranks waited for which, the slowest rank, and the overlap.

-o writes it as a picture (.svg), or anew for https://ui.perfetto.dev (.json), which the job itself does at its end.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from ..base.command_line import Parser, check_folder
from ..base.files import write_atomically
from .chrome import export
from .events import InvalidTrace, Trace
from .reading import read
from .report import report
from .timeline import timeline

FORMATS = (".svg", ".json")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; errors end the program."""
    options = Parser(prog="python -m pycoll.trace", description=__doc__, allow_abbrev=False)
    options.add_argument("directory", type=Path, metavar="DIR", help="folder of the trace")
    options.add_argument("-o", "--output", type=Path, help="a .svg or .json file to write")
    options.add_argument("--from", type=float, default=0.0, dest="begin", metavar="MS", help="begin of the picture")
    options.add_argument("--to", type=float, dest="end", metavar="MS", help="end of the picture")
    given = options.parse_args(argv)
    if given.output and given.output.suffix not in FORMATS:
        options.error(f"-o {given.output} does not end in {' or '.join(FORMATS)}")
    if not 0 <= given.begin < math.inf or (given.end is not None and not given.begin < given.end < math.inf):
        options.error(f"--from {given.begin:g} --to {given.end}: the end must be after the begin")
    if (given.begin or given.end is not None) and not (given.output and given.output.suffix == ".svg"):
        options.error("--from and --to are for a picture: -o with .svg")
    try:
        check_folder("-o", given.output)
    except ValueError as error:
        options.error(str(error))
    return given


def main(argv: Sequence[str] | None = None) -> None:
    """Print the summary, or write a file."""
    options = parse(argv)
    try:
        trace = read(options.directory)
        if options.output:
            _write(trace, options)
            return
        print(report(trace), end="")
    except (OSError, InvalidTrace) as error:
        sys.exit(f"python -m pycoll.trace: {error}")


def _write(trace: Trace, options: argparse.Namespace) -> None:
    if options.output.suffix == ".json":
        export(trace, options.output)
        return
    picture = timeline(trace, options.begin, options.end)
    write_atomically(options.output, lambda file: file.write(picture.encode()))


if __name__ == "__main__":
    main(sys.argv[1:])
