"""Print the schedule of all ranks: as JSON, which ``--file`` reads again, or as GOAL, for simulators such as LogGOPSim.

GOAL has messages and times, but no blocks: a combination of n bytes becomes a calculation of n*gamma nanoseconds, with
the default gamma of `pycoll.simulate.Network`.  All moves of a round require the moves of the round before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .base.command_line import Parser, in_words, say_written, until_the_reader_ends
from .base.files import write_text
from .primitives.direct import AND_SUFFIX, find_schedule
from .schedule.document import document_of, text_of
from .schedule.moves import Combine, Recv, Reduce, Send
from .schedule.own_file import check, load
from .schedule.registry import PRIMITIVES, Algorithm, Hosts, in_order
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
    options.add_argument("-f", "--format", choices=["json", "goal"], default="json", help="(%(default)s)")
    options.add_argument("-r", "--root", type=int, default=0, help="rank of the root (%(default)s)")
    options.add_argument("-s", "--segments", type=int, default=2, help="segments of pipelined algorithms (%(default)s)")
    options.add_argument("-p", "--ranks-per-host", type=int, default=1, help="ranks on each host (%(default)s)")
    options.add_argument("-b", "--nbytes", type=nbytes, default="1M", help="bytes of the vector in GOAL (%(default)s)")
    options.add_argument("-o", "--output", type=Path, help="file to write (default: print)")
    return options


def goal(algorithm: Algorithm, ranks: int, root: int, segments: int, hosts: Hosts, nbytes: int) -> Iterator[str]:
    """Yield the lines of a GOAL schedule (Hoefler, Siebert and Lumsdaine, ICPP 2009)."""
    together, gamma = sizes(algorithm, ranks, nbytes, segments, hosts), Network().gamma
    yield f"num_ranks {ranks}"
    for rank in range(ranks):
        yield f"\nrank {rank} {{"
        before: list[str] = []  # the last operations of the round before
        count = 0
        for moves in algorithm.schedule(rank, ranks, root, segments, hosts):
            ends: list[str] = []
            for move in moves:
                steps = []
                if isinstance(move, Send):
                    steps.append(f"send {together(move.blocks)}b to {move.to} tag 0")
                elif isinstance(move, (Recv, Reduce)):
                    steps.append(f"recv {together(move.blocks)}b from {move.source} tag 0")
                if isinstance(move, (Reduce, Combine)):
                    combined = together(move.blocks if isinstance(move, Reduce) else [move.into])
                    steps.append(f"calc {combined * gamma * 1e9:.0f}")
                needed = before
                for step in steps:
                    label = f"l{(count := count + 1)}"
                    yield f"{label}: {step}"
                    yield from (f"{label} requires {each}" for each in needed)
                    needed = [label]
                ends += needed if steps else []
            before = ends or before
        yield "}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the schedule, or write it."""
    grammar = parser()
    options = grammar.parse_args(argv)
    try:
        text = _text(options)
        if options.output:
            write_text(options.output, text)
    except (OSError, ValueError) as error:
        grammar.error(in_words(error))
    if options.output:
        say_written(options.output)
    else:
        sys.stdout.write(text)


def _text(options: argparse.Namespace) -> str:
    if options.file:
        load(options.file)
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
    if options.format == "json":
        return text_of(document_of(algorithm, ranks, root, segments, hosts))
    return "\n".join(goal(algorithm, ranks, root, segments, hosts, options.nbytes)) + "\n"


if __name__ == "__main__":
    with until_the_reader_ends():
        main()
