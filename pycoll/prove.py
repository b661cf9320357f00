"""Prove and count algorithms without MPI: ``python -m pycoll.prove allreduce ring``.

All ranks run symbolically, for several numbers of ranks, roots, segments and layouts of hosts.  The counts are compared
with the formulas in the docstring of the algorithm.  Without names, or with --all, every algorithm is proved.  If an
algorithm is wrong, the exit status is 1, and the output gives the reason: which rank waits for which, or whose
contribution is missing.  The exit status is also 1 if a docstring lacks a formula, or has one that disagrees with the
counts; then the counts are printed.  Ranks are counted from 0, and rounds from 1: round 3 of a rank is the third one
that it yields.

--steps prints what one rank does, instead of a proof: its messages, copies and combinations, one in each line.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from .base.command_line import Parser, in_words, until_the_reader_ends
from .base.progress_bar import progress_bar
from .compiler.listing import Listing, listing
from .compiler.program_key import ProgramKey
from .compiler.programs import compiled
from .primitives.direct import AND_SUFFIX, find_schedule
from .schedule.costs import count, disagreements, missing_lines
from .schedule.formats import NoAlgorithm
from .schedule.hosts import Hosts
from .schedule.neighborhood import OPTIONS, Neighborhood, add_options, described, neighborhood
from .schedule.neighbors import Stencil, without_neighbors
from .schedule.own_file import load, problem, registered
from .schedule.proof import ProofError, prove
from .schedule.registry import COLLECTIVES, NEIGHBORHOODS, Algorithm, algorithms_of

SIZES = [*range(1, 18), 23, 32]
MOST = 1 << 62  # bytes of a message, which is not cut into segments
MOST_RANKS = 1 << 16
SMALL = 9  # the largest number of ranks for which every root and several numbers of segments are tried


class Report(NamedTuple):
    """The result for one algorithm, in words; `missing` are the lines that the docstring lacks.

    `formulas` is None for a collective between neighbors, whose counts depend on the topology, and for a schedule that
    is for one number of ranks.
    """

    name: str
    proofs: int
    problem: str = ""  # why the first wrong case is wrong; the others are empty then
    formulas: Sequence[str] | None = ()  # how they disagree with the counts
    missing: Sequence[str] = ()

    def __str__(self) -> str:
        if self.problem:
            return "WRONG"
        parts = [f"{self.proofs} schedule{'s' * (self.proofs != 1)} proved"]
        if self.formulas is None:
            return parts[0]
        parts += ["formulas disagree with the counts"] if self.formulas else []
        if self.missing:
            parts.append(f"docstring incomplete: it has no line {', '.join(f'`{field}:`' for field in self.missing)}")
        return "; ".join(parts) if len(parts) > 1 else f"{parts[0]}, formulas agree with the counts"


def roots(algorithm: Algorithm, size: int) -> list[int]:
    """The roots to try."""
    if algorithm.only:
        return [algorithm.only[1]]
    if not algorithm.primitive.rooted:
        return [0]
    return list(range(size)) if size <= SMALL else [0, size // 3, size - 1]


def segments(algorithm: Algorithm, size: int) -> list[int]:
    """The numbers of segments to try."""
    if not algorithm.pipelined:
        return [1]
    return [1, 2, 3, 7] if size <= SMALL else [2]


def layouts(algorithm: Algorithm, size: int) -> list[Hosts]:
    """The layouts to try: one host per rank, one for all, equal numbers per host in both orders, and others."""
    if not algorithm.knows_hosts:
        return [None]
    ranks = range(size)
    found: list[Hosts] = [None, (0,) * size, *regular_layouts(algorithm, size)]
    if algorithm.levels:
        return [*found, *nested_layouts(size)]
    found += [tuple(rank // each for rank in ranks) for each in (2, 3, 4)]
    found += [tuple(int(rank**0.5) for rank in ranks), tuple(rank * rank % 5 for rank in ranks)]
    return list(dict.fromkeys(found))


def regular_layouts(algorithm: Algorithm, size: int) -> list[Hosts]:
    """Layouts with equal numbers of ranks per host, for which the formulas hold."""
    counts = [n for n in (2, 3, 4) if size % n == 0] if algorithm.knows_hosts else []
    return [tuple(range(n)) * (size // n) for n in counts]


def nested_layouts(size: int) -> list[Hosts]:
    """Layouts with two and three levels of equal domains, in both orders of the ranks."""
    found: list[Hosts] = []
    for sizes in product((1, 2, 3), repeat=3):
        if size % math.prod(sizes) == 0:
            a, b, c = sizes
            nested = tuple((rank % a, rank // a % b, rank // (a * b) % c) for rank in range(size))
            found += [nested, tuple(sorted(nested)), tuple(each[:2] for each in nested)]
    return list(dict.fromkeys(found))


def cases(algorithm: Algorithm, sizes: Sequence[int]) -> Iterator[tuple[int, int, int, Hosts]]:
    """The cases to prove, the smallest first: number of ranks, root, number of segments, and hosts."""
    for size in sizes:
        yield from product([size], roots(algorithm, size), segments(algorithm, size), layouts(algorithm, size))


def examine(algorithm: Algorithm, sizes: Sequence[int], topology: Neighborhood | None = None) -> Report:
    """Prove an algorithm up to the first wrong case; if there is none, compare its formulas with the counts.

    Between neighbors, prove it for one topology, or for several ones.
    """
    if topology:
        return examine_between_neighbors(algorithm, [topology])
    if algorithm.primitive.near:
        several = stencils if algorithm.needs_stencil else topologies
        return examine_between_neighbors(algorithm, chain.from_iterable(map(several, sizes)))
    proofs, sizes = 0, [algorithm.only[0]] if algorithm.only else sizes
    for case in cases(algorithm, sizes):
        if wrong := problem(algorithm, *case):
            return Report(str(algorithm), proofs, wrong)
        proofs += 1
    if algorithm.only:
        return Report(str(algorithm), proofs, formulas=None)
    return Report(str(algorithm), proofs, "", formula_problems(algorithm, sizes), missing_lines(algorithm))


def examine_between_neighbors(algorithm: Algorithm, found: Iterable[Neighborhood]) -> Report:
    """Prove an algorithm for these topologies."""
    proofs = 0
    for each in found:
        for hosts in layouts(algorithm, each.size):
            try:
                prove(algorithm, each.size, hosts=hosts, neighbors=each.known_to(algorithm, hosts))
            except ProofError as error:
                return Report(str(algorithm), proofs, f"{each.text}: {error}")
            proofs += 1
    return Report(str(algorithm), proofs, formulas=None)


def topologies(size: int) -> Iterator[Neighborhood]:
    """All grids of up to three dimensions, and graphs in which some ranks have several edges, some to themselves."""
    sides = [side for side in range(1, size + 1) if size % side == 0]
    for dimensions in (1, 2, 3):
        for dims in product(sides, repeat=dimensions):
            if math.prod(dims) == size:
                for periods in product((False, True), repeat=dimensions):
                    yield neighborhood(dims=dims, periods=periods)
    for most in (0, 1, 2, 5):
        edges = [(rank, rank * rank * (each + 1) % size) for rank in range(size) for each in range(rank % (most + 1))]
        yield neighborhood(size, edges=edges)


def stencils(size: int) -> Iterator[Neighborhood]:
    """All grids of up to three dimensions, with the neighbors on all sides, and with others, some of them twice."""
    sides = [side for side in range(1, size + 1) if size % side == 0]
    for dimensions in (1, 2, 3):
        around = tuple(product((-1, 0, 1), repeat=dimensions))
        far = tuple(tuple((number * (each + 2)) % 4 - 1 for each in range(dimensions)) for number in range(6))
        for dims in product(sides, repeat=dimensions):
            for periods in product((False, True), repeat=dimensions) if math.prod(dims) == size else ():
                for offsets in (around, far):
                    if without_neighbors(Stencil(dims, periods, offsets)) is None:
                        yield neighborhood(dims=dims, periods=periods, offsets=offsets)


def formula_problems(algorithm: Algorithm, sizes: Sequence[int]) -> list[str]:
    """The problems of the formulas in the docstring: for each line, the first case in which it differs."""
    missing = missing_lines(algorithm)
    wrong: dict[str, str] = {}
    for size in sizes:
        for hosts in [None, *regular_layouts(algorithm, size)]:
            for number in segments(algorithm, size):
                wrong = disagreements(algorithm, size, number, hosts) | wrong
    return [text for what, text in wrong.items() if what.partition(",")[0] not in missing]


def examine_named(
    name: tuple[str, str], sizes: Sequence[int], file: Path | None, topology: Neighborhood | None = None
) -> Report:
    """Examine the algorithm of this primitive and name; runs in a separate process."""
    if file:
        load(file)
    return examine(find_schedule(*name), sizes, topology)


def examine_all(
    names: Sequence[tuple[str, str]], sizes: Sequence[int], file: Path | None, topology: Neighborhood | None = None
) -> list[Report]:
    """Examine several algorithms on all cores."""
    examine_one = functools.partial(examine_named, sizes=sizes, file=file, topology=topology)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if min(cores, len(names)) == 1:
        return [examine_one(name) for name in names]
    with multiprocessing.Pool(min(cores, len(names))) as pool:
        return list(progress_bar(pool.imap(examine_one, names), "prove", "algorithm", len(names), sys.stderr.isatty()))


def counts_table(algorithm: Algorithm, sizes: Sequence[int]) -> Iterator[str]:
    """The lines of a table of the counts, for each number of ranks."""
    yield "Counts of the busiest rank with root 0, and coefficients of the cost; Z is the whole vector:"
    costs = ["alpha", "beta/Z", "gamma/Z"]
    cells = [["ranks", "segments", "rounds", "messages", "sent/Z", "received/Z", "combined/Z", *costs]]
    for size in sizes:
        number = segments(algorithm, size)[-1]
        parts, counts = algorithm.parts(size, number), count(algorithm, size, 0, number)
        shares = [f"{max(each) / parts:.3f}" for each in (counts.sent, counts.received, counts.combined)]
        cost = [f"{counts.alpha:g}", f"{counts.beta / parts:.3f}", f"{counts.gamma / parts:.3f}"]
        cells.append([str(size), str(number), str(counts.rounds), str(max(counts.messages)), *shares, *cost])
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths))


def show(reports: Sequence[Report]) -> None:
    """Print a line for each algorithm, followed by its problems."""
    width = max(len(report.name) for report in reports)
    for report in reports:
        print(f"{report.name:{width}}  {report}")
        for line in [*report.problem.splitlines(), *(report.formulas or ())]:
            print(f"    {line}")


def sizes(text: str) -> list[int]:
    """Numbers of ranks: ``5`` or ``1-16,32``."""
    try:
        ends = [tuple(map(int, part.split("-", 1))) for part in text.split(",")]
        if max(part[-1] for part in ends) > MOST_RANKS:
            raise argparse.ArgumentTypeError(f"{text!r} has more than {MOST_RANKS} ranks")
        found = sorted({size for part in ends for size in range(part[0], part[-1] + 1)})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of ranks, for example 4 or 1-16,32")
    return found


def parser() -> Parser:
    """The parser of the command line."""
    options = Parser(prog="python -m pycoll.prove", description=__doc__, allow_abbrev=False)
    options.add_argument("primitive", nargs="?", help=f"one of: {', '.join(COLLECTIVES)}")
    options.add_argument("algorithm", nargs="?", help=f"an algorithm of the primitive (default: all); {AND_SUFFIX}")
    options.add_argument("--all", action="store_true", help="prove every algorithm of every primitive")
    options.add_argument("-n", "--ranks", type=sizes, help="numbers of ranks (default: 1-17,23,32)")
    options.add_argument(
        *("--file", "--import"),
        type=Path,
        help="prove the algorithms of a Python file, or a schedule in a format of `python -m pycoll.export`",
    )
    add_options(options)
    steps = options.add_argument_group("instead of a proof")
    steps.add_argument("--steps", type=int, metavar="RANKS", help="print the steps of one rank out of so many")
    steps.add_argument("--rank", type=int, default=0, help="the rank (%(default)s); rank 0 is the root")
    steps.add_argument("--bytes", type=int, help="the size of the vector, or of a block (8 times the number of ranks)")
    steps.add_argument("--json", action="store_true", help="print the steps as JSON")
    return options


def steps_of(
    algorithm: Algorithm, size: int, rank: int, nbytes: int | None, topology: Neighborhood | None = None
) -> Listing:
    """The steps of one rank, in blocks of bytes; ValueError if there is no such rank or length."""
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"--rank {rank} is not one of {size} ranks")
    nbytes = 8 * size if nbytes is None else nbytes
    if nbytes < 0:
        raise ValueError(f"--bytes {nbytes} is negative")
    number = 2 if algorithm.pipelined else 1
    key = ProgramKey(algorithm, rank, size, 0, nbytes, 1, False, number, MOST)
    if topology:
        if topology.size != size:
            raise ValueError(f"--steps {size}: the {topology.text} has {topology.size} ranks")
        key = key.between(topology.known_to(algorithm, None)[rank])
    elif wrong := problem(algorithm, size, 0, number, None):
        raise ValueError(f"{algorithm} is wrong: {wrong}")
    return listing(f"{algorithm}, rank {rank} of {size}, {nbytes} bytes:", compiled(key.with_equal_counts()))


def chosen(options: Any) -> list[tuple[str, str]]:
    """The primitive and the name of each algorithm that the command line selects."""
    if options.all and (options.primitive or options.file):
        raise ValueError(f"--all proves every algorithm: omit {options.primitive or options.file}")
    in_file = load(options.file) if options.file else None
    if options.algorithm:
        find_schedule(options.primitive, options.algorithm)
        return [(options.primitive, options.algorithm)]
    if options.primitive:
        algorithms_of(options.primitive)
    between_neighbors = [(primitive, name) for primitive in NEIGHBORHOODS for name in algorithms_of(primitive)]
    names = [*registered(), *between_neighbors] if in_file is None else in_file
    return [name for name in names if options.primitive in (None, name[0])]


def _topology(options: Any) -> Neighborhood | None:
    """The topology that the options describe; None for several ones, or for a collective that needs none."""
    if all(getattr(options, name) is None for name in OPTIONS):
        return None
    if options.primitive is None:
        raise ValueError("--dims and --edges need a collective between neighbors, for example neighbor_alltoall")
    if options.ranks and options.dims:
        raise ValueError("-n cannot be combined with --dims, which has its number of ranks")
    if options.ranks and len(options.ranks) > 1:
        raise ValueError(f"-n {options.ranks[0]}-{options.ranks[-1]}: --edges needs one number of ranks")
    found = neighborhood(*(options.ranks or [None]), **described(options, COLLECTIVES[options.primitive]))
    if options.algorithm:
        found.check(find_schedule(options.primitive, options.algorithm))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Prove the selected algorithms and print the results; return the exit status."""
    grammar = parser()
    options = grammar.parse_args(argv)
    try:
        names = chosen(options)
        topology = _topology(options)
        if topology:
            names = [name for name in names if options.algorithm or topology.supports(find_schedule(*name))]
        if options.steps is None:
            steps = None
        elif len(names) == 1:
            if find_schedule(*names[0]).primitive.near and topology is None:
                raise ValueError(f"--steps of {names[0][0]} needs --dims or --edges")
            steps = steps_of(find_schedule(*names[0]), options.steps, options.rank, options.bytes, topology)
        else:
            raise ValueError("--steps needs one algorithm, for example: allreduce ring --steps 4")
    except NoAlgorithm as proved:
        print(proved)
        return 0
    except (OSError, ValueError) as error:
        grammar.error(in_words(error))
    if steps:
        print(json.dumps(steps.as_json(), indent=1) if options.json else steps)
        return 0
    if not names:
        grammar.error(f"--file {options.file} registers no algorithm of {options.primitive}")
    ranks = options.ranks or SIZES
    for name in names:
        if options.ranks and (only := find_schedule(*name).only) and only[0] not in options.ranks:
            grammar.error(f"{'.'.join(name)} is a schedule for {only[0]} ranks")
    reports = examine_all(names, ranks, options.file, topology)
    show(reports)
    for report, name in zip(reports, names):
        if report.formulas or (len(names) == 1 and not report.problem and report.formulas is not None):
            print(f"\n{report.name}:" if len(names) > 1 else "")
            print("\n".join(counts_table(find_schedule(*name), ranks)))
    wrong, disagreeing, incomplete = (
        sum(map(bool, each)) for each in zip(*((report.problem, report.formulas, report.missing) for report in reports))
    )
    if len(names) > 1:
        found = [(wrong, "wrong"), (disagreeing, "right, but their formulas disagree with the counts")]
        found += [(incomplete, "right, but their docstrings are incomplete")]
        counted = [f"{number} of {len(names)} algorithms are {what}" for number, what in found if number]
        print("\n" + ("; ".join(counted) or f"all {len(names)} algorithms are right"))
    return 1 if wrong or disagreeing or incomplete else 0


if __name__ == "__main__":
    with until_the_reader_ends():
        sys.exit(main())
