"""Draw an algorithm step by step, or with ``pipeline`` the time chart of a pipeline.

Without -o, print text.  An .svg file is a sheet with all steps, an .html file is a page that plays them.  --all
writes a site with all algorithms.  ``python -m pycoll.draw pipeline --help`` lists the options of time charts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..base.command_line import Parser, check_folder, say_written, until_the_reader_ends
from ..base.files import write_text
from ..primitives.direct import AND_SUFFIX, find_schedule
from ..schedule.hosts import Hosts, without_domains
from ..schedule.neighborhood import Neighborhood, add_options, described, neighborhood
from ..schedule.own_file import check as check_own
from ..schedule.own_file import load
from ..schedule.pipeline import SCHEDULES, check
from ..schedule.registry import COLLECTIVES, Algorithm, algorithms_of
from .frames import Film
from .gallery import Setting, guide
from .page import page
from .pipeline import svg
from .pipeline import text as time_chart
from .sheet import sheet
from .text import text

RANKS, MOST = 4, 64
FORMATS: dict[str, Callable[[Film], str]] = {".svg": sheet, ".html": page}


def parser() -> Parser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.draw", description=__doc__, allow_abbrev=False)
    options.add_argument("primitive", nargs="?", help=f"one of: {', '.join(COLLECTIVES)}")
    options.add_argument("name", nargs="?", metavar="algorithm", help="the same as --algorithm")
    options.add_argument("-a", "--algorithm", metavar="NAME", help=f"an algorithm of the primitive; {AND_SUFFIX}")
    options.add_argument("--all", action="store_true", help="every algorithm of every primitive, into the directory -o")
    options.add_argument("-n", "--ranks", type=int, help=f"number of ranks ({RANKS}, or all of the grid)")
    options.add_argument("-r", "--root", type=int, help="rank of the root (0)")
    options.add_argument("-s", "--segments", type=int, help="segments of pipelined algorithms (2)")
    options.add_argument(
        "--hosts",
        metavar="H,H,...",
        help="the host of each rank: 0,0,1,1, or its domains: 0.0,0.1,1.0,1.1 (default: two halves)",
    )
    add_options(options)
    options.add_argument("-o", "--output", type=Path, help="a .svg or .html file; with --all, a directory")
    options.add_argument("--file", type=Path, help="register the algorithms of this file, named after its primitive")
    return options


def parse(argv: Sequence[str] | None) -> tuple[Setting, Algorithm | None, Path | None]:
    """Return what to draw (no algorithm: all) and the output file; errors exit the program."""
    grammar = parser()
    options = grammar.parse_args(argv)
    with grammar.refusing(OSError, ValueError):
        if options.name and options.algorithm:
            raise ValueError("an algorithm cannot be combined with --algorithm")
        options.algorithm = options.name or options.algorithm
        if options.file:
            _choose_own(options)
        algorithm = None if options.all else _algorithm(options.primitive, options.algorithm)
        near = _neighborhood(options, algorithm)
        ranks, root = algorithm.only if algorithm and algorithm.only else (RANKS, 0)
        options.ranks = near.size if near else ranks if options.ranks is None else options.ranks
        _check(options, algorithm)
        hosts = _hosts(options.hosts, options.ranks)
        segments = 2 if options.segments is None else options.segments
        setting = Setting(options.ranks, root if options.root is None else options.root, segments, hosts, near)
        if options.file and algorithm:
            check_own(algorithm, *setting.case(algorithm))
    return setting, algorithm, options.output


def _choose_own(options: argparse.Namespace) -> None:
    """Register the algorithms of the file, and choose the first one unless the command line names another."""
    if options.all:
        raise ValueError("--all cannot be combined with --file")
    own = [name for name in load(options.file) if options.primitive in (None, name[0])]
    if own and not options.algorithm:
        options.primitive, options.algorithm = own[0]


def _algorithm(primitive: str | None, name: str | None) -> Algorithm:
    if primitive not in COLLECTIVES:
        what = "a primitive is missing" if primitive is None else f"primitive {primitive!r} is unknown"
        raise ValueError(f"{what}; choose one of: {', '.join(COLLECTIVES)} (or --all)")
    if name is None:
        raise ValueError(f"--algorithm is missing; choose one of: {', '.join(algorithms_of(primitive))}")
    return find_schedule(primitive, name)


def _neighborhood(options: argparse.Namespace, algorithm: Algorithm | None) -> Neighborhood | None:
    """Return the neighborhood for a collective between neighbors."""
    if algorithm is None:
        return None
    topology = described(options, algorithm.primitive)
    near = neighborhood(options.ranks, **topology) if topology else None
    if near:
        near.check(algorithm)
    return near


def _check(options: argparse.Namespace, algorithm: Algorithm | None) -> None:
    if not 1 <= options.ranks <= MOST:
        raise ValueError(f"-n must be between 1 and {MOST}, not {options.ranks}")
    if options.root is not None and not 0 <= options.root < options.ranks:
        raise ValueError(f"--root must be between 0 and {options.ranks - 1}, not {options.root}")
    if options.segments is not None and not 1 <= options.segments <= MOST:
        raise ValueError(f"--segments must be between 1 and {MOST}, not {options.segments}")
    if algorithm is None:
        if options.primitive or options.algorithm:
            raise ValueError("--all cannot be combined with a primitive or an algorithm")
        if options.output is None:
            raise ValueError("--all needs -o with a directory")
        return
    if options.root is not None and not algorithm.primitive.rooted:
        raise ValueError(f"--root {options.root}: {algorithm.primitive.name} has no root")
    if options.segments is not None and not algorithm.pipelined:
        raise ValueError(f"--segments {options.segments}: {algorithm} is not pipelined")
    check_folder("-o", options.output, *FORMATS)


def _hosts(given: str | None, size: int) -> Hosts:
    """Return the host of each rank, or its domains if they are given, as in 0.0,0.1,1.0,1.1."""
    if given is None:
        return None
    try:
        hosts = tuple(tuple(map(int, each.split("."))) for each in given.split(","))
    except ValueError:
        raise ValueError(f"--hosts {given!r} is not a comma-separated list of numbers") from None
    if len(set(map(len, hosts))) > 1:
        raise ValueError(f"--hosts {given} has domains for some ranks only")
    if len(hosts) != size:
        raise ValueError(f"--hosts {given} names {len(hosts)} hosts for {size} ranks")
    return without_domains(hosts) if len(hosts[0]) == 1 else hosts


def draw_pipeline(argv: Sequence[str]) -> None:
    """Draw the time chart of a pipeline."""
    options = Parser(
        prog="python -m pycoll.draw pipeline",
        description="Draw when each stage of a pipeline works; a backward pass takes twice as long as a forward pass.",
    )
    options.add_argument("--schedule", default="1f1b", help=f"one of: {', '.join(SCHEDULES)} (%(default)s)")
    options.add_argument("-n", "--stages", type=int, default=4, help="number of stages (%(default)s)")
    options.add_argument("-m", "--micro-batches", type=int, default=8, help="number of micro-batches (%(default)s)")
    options.add_argument("-v", "--chunks", type=int, help="chunks of each stage (1; interleaved: 2)")
    options.add_argument("-o", "--output", type=Path, help="an .svg file; without it, print text")
    given = options.parse_args(argv)
    chunks = (2 if given.schedule == "interleaved" else 1) if given.chunks is None else given.chunks
    chart = given.schedule, given.stages, given.micro_batches, chunks
    with options.refusing(ValueError, OSError):
        check(*chart)
        if max(given.stages, given.micro_batches) > MOST:
            raise ValueError(f"-n and -m must be at most {MOST}")
        check_folder("-o", given.output, ".svg")
        if given.output:
            write_text(given.output, svg(*chart))
            say_written(given.output)
    if not given.output:
        print(time_chart(*chart), end="")


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, and print or write the result."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["pipeline"]:
        draw_pipeline(argv[1:])
        return
    setting, algorithm, output = parse(argv)
    if algorithm and not output:
        print(text(setting.film(algorithm)), end="")
        return
    assert output  # checked by `parse`
    try:
        if algorithm:
            write_text(output, FORMATS[output.suffix](setting.film(algorithm)))
            say_written(output)
            return
        output.mkdir(parents=True, exist_ok=True)
        for name, content in guide(setting):
            write_text(output / name, content)
    except OSError as error:
        parser().error(f"-o {output}: {error.strerror}")
    say_written(output / "index.html")


if __name__ == "__main__":
    with until_the_reader_ends():
        main(sys.argv[1:])
