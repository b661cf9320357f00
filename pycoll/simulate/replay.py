"""Simulate the collectives of a trace, and draw them below the measured ones: ``python -m pycoll.simulate.replay DIR``.

Each collective begins on each rank when it began there, and has the messages and the combinations that were recorded.
So the difference to the measured end is that of the network model, for example one that ``python -m pycoll.simulate
--calibrate`` fitted to this network, and of what else the ranks did meanwhile.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from ..base.command_line import Parser, check_folder, in_words, say_written, until_the_reader_ends
from ..base.files import write_text
from ..schedule.moves import Blocks, Combine, Move, Recv, Round, Send
from ..trace.events import InvalidTrace, Trace, TracedCollective, TracedProgram
from ..trace.reading import read as read_trace
from ..trace.timeline import Bar, timeline
from ..trace.window import add_window, check_window
from . import outcome_of
from .network import UNCUT, Network, read
from .run import Cluster


class Prediction(NamedTuple):
    """A collective on one rank: the measured and the simulated end, in ns."""

    measured: TracedCollective
    end: int


def predictions(trace: Trace, network: Network) -> list[Prediction]:
    """Simulate the collectives that all of their ranks have recorded, with at least one message."""
    groups: dict[object, dict[int, TracedCollective]] = defaultdict(dict)
    for rank in trace.ranks.values():
        for one in rank.collectives:
            if one.finished:
                groups[one.key][rank.number] = one
    found: list[Prediction] = []
    for members in groups.values():
        first = next(iter(members.values())).program
        if len(members) == first.size and any(one.program.messages for one in members.values()):
            found += _predicted(trace, members, network)
    return found


def _predicted(trace: Trace, members: dict[int, TracedCollective], network: Network) -> Iterator[Prediction]:
    """Simulate a collective; yield nothing if messages lack their other ends."""
    numbers = sorted(members)
    index_of = {number: index for index, number in enumerate(numbers)}
    names = [trace.ranks[number].about["host"] for number in numbers]
    hosts = tuple(names.index(name) for name in names)
    begin = min(one.begin for one in members.values())
    rounds = [_rounds(members[number].program, index_of) for number in numbers]
    starts = [(members[number].begin - begin) / 1e9 for number in numbers]
    ends = outcome_of(rounds, Cluster(network, len(numbers), hosts), _together, UNCUT, starts).ends
    if not any(map(math.isnan, ends)):
        for number, end in zip(numbers, ends):
            yield Prediction(members[number], begin + round(end * 1e9))


def _together(blocks: Blocks) -> int:
    return sum(blocks)  # type: ignore[arg-type]  # a block stands for its bytes


def _rounds(program: TracedProgram, index_of: dict[int, int]) -> Iterator[Round]:
    """Yield the recorded rounds: the messages of each, and then its combinations."""
    messages: dict[int, dict[int, Move]] = defaultdict(dict)
    local: dict[int, list[Move]] = defaultdict(list)
    for what, number, concerns in program.steps:
        if what in ("start", "wait") and concerns is not None:
            message = program.messages[concerns]
            blocks = [message.nbytes] if message.nbytes else []
            move = Send if message.outgoing else Recv
            messages[number][concerns] = move(index_of[message.peer], blocks)
        elif what == "combine":
            local[number].append(Combine(0, concerns or 0))
    for number in sorted({*messages, *local}):
        if number in messages:
            yield tuple(messages[number].values())
        if number in local:
            yield tuple(local[number])


def table(found: Sequence[Prediction]) -> str:
    """Return a table of the times of each kind of collective, in µs."""
    groups: dict[tuple[str, int], list[Prediction]] = defaultdict(list)
    for one in found:
        groups[one.measured.name, one.measured.program.nbytes].append(one)
    rows = []
    for (name, nbytes), ones in sorted(groups.items()):
        measured = median(one.measured.end - one.measured.begin for one in ones) / 1e3
        predicted = median(one.end - one.measured.begin for one in ones) / 1e3
        ratio = predicted / measured if measured else math.nan
        rows.append([name, nbytes, len(ones), f"{measured:.1f}", f"{predicted:.1f}", f"{ratio:.2f}"])
    headers = ["collective", "bytes", "times", "measured (µs)", "predicted (µs)", "ratio"]
    return str(tabulate(rows, headers, disable_numparse=True, colalign=("left", *["right"] * 5)))


def parser() -> Parser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.simulate.replay", description=__doc__, allow_abbrev=False)
    options.add_argument("directory", type=Path, metavar="DIR", help="directory of the trace")
    options.add_argument("--network", type=Path, metavar="FILE", help="read a network that --calibrate wrote")
    options.add_argument("-o", "--output", type=Path, help="the .svg file to write")
    add_window(options)
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and draw the timeline."""
    grammar = parser()
    options = grammar.parse_args(argv)
    try:
        if check_window(options) and not options.output:
            raise ValueError("--from and --to need -o FILE.svg")
        check_folder("-o", options.output, ".svg")
        network = read(options.network) if options.network else Network()
    except (OSError, ValueError) as error:
        grammar.error(in_words(error))
    try:
        trace = read_trace(options.directory)
        found = predictions(trace, network)
        if not found:
            raise InvalidTrace(f"{options.directory}: no collective with messages was recorded by all of its ranks")
        print(table(found))
        if options.output:
            bars: dict[int, list[Bar]] = defaultdict(list)
            for one in found:
                bars[one.measured.rank].append(Bar(one.measured.begin, one.end, one.measured.name, "predicted"))
            write_text(options.output, timeline(trace, options.begin, options.end, bars))
            say_written(options.output)
    except (OSError, InvalidTrace) as error:
        sys.exit(f"{grammar.prog}: {in_words(error)}")


if __name__ == "__main__":
    with until_the_reader_ends():
        main()
