"""Summarize a trace: where time was spent, which ranks waited for which, the slowest rank, and the overlap.

With -o FILE.svg, draws the trace. With -o FILE.json, writes all recorded events for https://ui.perfetto.dev. The job
itself writes the last events in this format when it ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..base.command_line import Parser, check_folder, in_words, say_written, until_the_reader_ends
from ..base.files import write_text
from .chrome import export
from .events import InvalidTrace, Trace
from .reading import read
from .report import report
from .timeline import timeline
from .training_steps import interval
from .window import add_window, check_window

FORMATS = (".svg", ".json")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; errors end the program."""
    options = Parser(prog="python -m pycoll.trace", description=__doc__, allow_abbrev=False)
    options.add_argument("directory", type=Path, metavar="DIR", help="directory of the trace")
    options.add_argument("-o", "--output", type=Path, help="the .svg or .json file to write")
    add_window(options)
    options.add_argument(
        "--steps", type=_steps, metavar="FIRST-LAST", help="draw these training steps, numbered from 1; for example 5-7"
    )
    given = options.parse_args(argv)
    try:
        check_folder("-o", given.output, *FORMATS)
        times = check_window(given)
    except ValueError as error:
        options.error(str(error))
    if times and given.steps:
        options.error("--steps cannot be combined with --from and --to")
    if (times or given.steps) and not (given.output and given.output.suffix == ".svg"):
        options.error("--from, --to and --steps need -o FILE.svg")
    return given


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal() and 1 <= int(first) <= int(last or first)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of steps: for example 5 or 5-7")
    return int(first), int(last or first)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the summary, or write a file."""
    options = parse(argv)
    try:
        trace = read(options.directory)
        if options.output:
            _write(trace, options)
            say_written(options.output)
            return
        print(report(trace), end="")
    except (OSError, InvalidTrace) as error:
        sys.exit(f"python -m pycoll.trace: {in_words(error)}")


def _write(trace: Trace, options: argparse.Namespace) -> None:
    if options.output.suffix == ".json":
        export(trace, options.output)
        return
    begin, end = options.begin, options.end
    if options.steps:
        begin, end = (time / 1e6 for time in interval(trace, *options.steps))
    write_text(options.output, timeline(trace, begin, end))


if __name__ == "__main__":
    with until_the_reader_ends():
        main(sys.argv[1:])
