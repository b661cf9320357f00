"""Print the schedule of all ranks: as JSON, or in a format of MSCCL, MSCCL++, GOAL or Chakra.

``--file``, or ``--import`` of the prover, reads all of them.  GOAL has messages and times, but no blocks, so only its
messages can be proved.  In GOAL and Chakra, combinations take their time with the default gamma of
`pycoll.simulate.Network`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .base.command_line import Parser, check_folder, in_words, say_written, until_the_reader_ends
from .base.files import write_bytes
from .primitives.direct import AND_SUFFIX, find_schedule
from .schedule.formats import FORMATS, files_written
from .schedule.formats.plan import ExportedSchedule, plan_of
from .schedule.hosts import in_order
from .schedule.own_file import check, load
from .schedule.registry import PRIMITIVES
from .simulate.network import Network
from .simulate.run import sizes
from .tune.options import nbytes


def parser() -> Parser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.export", description=__doc__, allow_abbrev=False)
    options.add_argument("primitive", help=f"one of: {', '.join(PRIMITIVES)}")
    options.add_argument("algorithm", help=f"an algorithm of the primitive; {AND_SUFFIX}")
    options.add_argument("--file", type=Path, help="register the algorithms of this file first")
    options.add_argument("-n", "--ranks", type=int, required=True, help="number of ranks")
    options.add_argument("-f", "--format", choices=[*FORMATS], default="json", help="(%(default)s)")
    options.add_argument("-r", "--root", type=int, default=0, help="rank of the root (%(default)s)")
    options.add_argument("-s", "--segments", type=int, default=2, help="segments of pipelined algorithms (%(default)s)")
    options.add_argument("-p", "--ranks-per-host", type=int, default=1, help="ranks on each host (%(default)s)")
    options.add_argument(
        "-b", "--nbytes", type=nbytes, default="1M", help="bytes of the vector, for goal and chakra (%(default)s)"
    )
    options.add_argument(
        "-o",
        "--output",
        type=Path,
        help="file to write (default: print); x.et becomes x.0.et, x.1.et, ...",
    )
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Print the schedule, or write it."""
    grammar = parser()
    options = grammar.parse_args(argv)
    try:
        check_folder("-o", options.output, FORMATS[options.format].ending)
        plan = _plan(options)
        if options.output is None:
            content = FORMATS[options.format].write(plan)
            if not isinstance(content, str):
                raise ValueError(f"-f {options.format} has a file for each rank: choose their name with -o")
            sys.stdout.write(content)
            return
        files = files_written(plan, options.format, options.output)
        for file, data in files.items():
            write_bytes(file, data)
    except (OSError, ValueError) as error:
        grammar.error(in_words(error))
    say_written(*files)


def _plan(options: argparse.Namespace) -> ExportedSchedule:
    if options.file:
        load(options.file)
    if options.primitive not in PRIMITIVES:
        raise ValueError(f"primitive={options.primitive!r} is not one of: {', '.join(PRIMITIVES)}")
    algorithm = find_schedule(options.primitive, options.algorithm)
    ranks, root, per_host = options.ranks, options.root if algorithm.primitive.rooted else 0, options.ranks_per_host
    for name, value, least in (("-n", ranks, 1), ("-s", options.segments, 1), ("-p", per_host, 1)):
        if value < least:
            raise ValueError(f"{name} {value} is less than {least}")
    if not 0 <= root < ranks:
        raise ValueError(f"-r {root} is not one of {ranks} ranks")
    segments = options.segments if algorithm.pipelined else 1
    hosts = in_order(ranks, per_host)
    check(algorithm, ranks, root, segments, hosts)
    together = sizes(algorithm, ranks, options.nbytes, segments, hosts)
    return plan_of(algorithm, ranks, root, segments, hosts, together, Network().gamma)


if __name__ == "__main__":
    with until_the_reader_ends():
        main()
