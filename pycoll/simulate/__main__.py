"""Simulate a collective on any number of ranks, with one algorithm or with all, and print the costs.

--plot plots time against ranks and against bytes.  --draw draws the topology.  Under mpiexec, --calibrate measures the
real network.  ``python -m pycoll.simulate training`` simulates a training step, and describes its options with --help.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from ..base.command_line import Parser, check_folder, say_written, until_the_reader_ends
from ..base.files import write_text
from ..primitives.direct import AND_SUFFIX, SUFFIX, find_schedule
from ..schedule.hosts import in_order
from ..schedule.neighborhood import Neighborhood, add_options, described, neighborhood
from ..schedule.own_file import check, load
from ..schedule.registry import COLLECTIVES, Algorithm, algorithms_of
from ..tune.options import nbytes
from . import Simulated, simulate
from .network import write
from .options import add_network, network_of
from .picture import svg
from .plot import plot
from .topology_names import parse
from .training import command as training

RANKS = 16
PROVED = 64  # the most ranks for which algorithms of a file are proved before they are simulated
PLOT = Path("simulated.png")
TRAINING = "training"  # where others name a primitive


def parser() -> Parser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.simulate", description=__doc__, allow_abbrev=False)
    options.add_argument("primitive", nargs="?", help=f"one of: {', '.join(COLLECTIVES)}; or {TRAINING}")
    options.add_argument("names", nargs="?", metavar="algorithm", help="the same as --algorithm")
    options.add_argument("-a", "--algorithm", help=f"comma-separated names (default: all); {AND_SUFFIX}")
    options.add_argument("--file", type=Path, help="register the algorithms of this file, named after its primitive")
    options.add_argument("-n", "--ranks", type=int, help=f"number of ranks ({RANKS}, or all of the topology)")
    options.add_argument(
        "-b",
        "--nbytes",
        type=nbytes,
        default="1M",
        help="size of the whole vector, or of the block for a neighbor, for example 64K (%(default)s)",
    )
    options.add_argument("-r", "--root", type=int, default=0, help="rank of the root (%(default)s)")
    options.add_argument(
        "-s", "--segments", type=int, help="segments of pipelined algorithms (default: as pycoll chooses)"
    )
    options.add_argument(
        "-d", "--domains-per-host", type=int, default=1, help="domains of each host, such as sockets (%(default)s)"
    )
    add_network(options)
    options.add_argument(
        "--delay", action="append", type=_delay, default=[], metavar="RANK:SECONDS", help="let a rank start late"
    )
    options.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        nargs="?",
        const=PLOT,
        help=f"plot time against ranks and bytes: .png, .svg or .pdf (without FILE: {PLOT})",
    )
    options.add_argument("--draw", type=Path, metavar="FILE", help="draw the topology as .svg, with a route")
    add_options(options)
    options.add_argument("--calibrate", action="store_true", help="measure the network, under mpiexec")
    options.add_argument("-o", "--output", type=Path, help="file that --calibrate writes the network to")
    return options


def _delay(text: str) -> tuple[int, float]:
    rank, _, seconds = text.partition(":")
    try:
        return int(rank), float(seconds)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK:SECONDS, for example 3:0.001") from None


def _algorithms(primitive: str, names: str, near: Neighborhood | None) -> list[Algorithm]:
    if names != "all":
        return [find_schedule(primitive, name) for name in names.split(",")]
    return [each for each in algorithms_of(primitive).values() if near is None or near.supports(each)]


def _ranks(options: argparse.Namespace, near: Neighborhood | None) -> int:
    """Return the number of ranks: as given, or all of the neighborhood or of the topology, or `RANKS`."""
    if near:
        return near.size
    if options.ranks is not None or options.topology is None:
        return RANKS if options.ranks is None else options.ranks
    links = parse(options.topology)
    return (links.size or RANKS) * (options.ranks_per_host or links.ranks_per_host)


def _row(name: str, result: Simulated) -> dict[str, Any]:
    busiest = max(result.links, key=lambda link: result.links[link].busy, default=None)
    return {
        "algorithm": name,
        "time\n(µs)": result.time * 1e6,
        "messages\nsent": int(result.messages.max()),
        "bytes\nsent": int(result.sent.max()),
        "processor\nbusy (µs)": result.busy.max() * 1e6,
        "waiting\n(µs)": result.waiting.max() * 1e6,
        "busiest\nlink": busiest,
        "bytes on\nthis link": result.links[busiest].nbytes if busiest else None,
        "link\nbusy (%)": 100 * result.links[busiest].busy / result.time if busiest and result.time else None,
    }


def main(argv: Sequence[str]) -> None:
    """Simulate and print."""
    if argv[:1] == [TRAINING]:
        training.main(argv[1:])
        return
    grammar = parser()
    options = grammar.parse_args(argv)
    with grammar.refusing(ValueError, OSError):
        if options.calibrate:
            calibrate(_calibrated(options))
            return
        if options.draw:
            if options.primitive or options.plot:
                raise ValueError("--draw draws a topology, and needs no primitive and no --plot")
            draw(options.draw, options.topology)
            return
        if options.output:
            raise ValueError(f"-o {options.output} is only for --calibrate; use --plot for plots")
        own = load(options.file) if options.file else []
        if own and options.primitive is None:
            options.primitive = own[0][0]
        network = network_of(options)
        if options.primitive is None:
            raise ValueError(f"a primitive is missing; choose one of: {', '.join(COLLECTIVES)}")
        algorithms_of(options.primitive)  # or an error that lists the primitives
        topology = described(options, COLLECTIVES[options.primitive])
        near = neighborhood(options.ranks, **topology) if topology else None
        if options.names and options.algorithm:
            raise ValueError("an algorithm cannot be combined with --algorithm")
        chosen = _algorithms(options.primitive, options.names or options.algorithm or "all", near)
        setting = {
            "network": network,
            "root": options.root,
            "segments": options.segments,
            "ranks_per_host": options.ranks_per_host,
            "domains_per_host": options.domains_per_host,
            "topology": options.topology,
        }
        only = [each.only[0] for each in chosen if each.only]
        ranks = only[0] if options.ranks is None and only else _ranks(options, near)
        if 0 <= options.root < ranks:  # else `simulate` raises the error
            for each in chosen:
                if (options.primitive, each.name.removesuffix(SUFFIX)) in own:
                    _check_own(each, ranks if each.only else min(ranks, PROVED), options)
        if options.plot:
            if near:
                raise ValueError(f"--plot is not possible for {options.primitive}: the topology has {ranks} ranks")
            if options.delay:
                raise ValueError("--delay is not possible with --plot, in which all ranks start together")
            plot(options.plot, chosen, ranks, options.nbytes, setting)
            say_written(options.plot)
            return
        setting |= {"ranks": ranks, "nbytes": options.nbytes, "delays": dict(options.delay)} | topology
        results = {each.name: simulate(options.primitive, algorithm=each.name, **setting) for each in chosen}
    rows = [_row(name, results[name]) for name in sorted(results, key=lambda name: results[name].time)]
    print(tabulate(rows, "keys", floatfmt=("", ",.2f", "", "", ",.2f", ",.2f", "", "", ".1f"), intfmt=","))
    print("\nMessages, bytes, processor and waiting are maxima over all ranks.")


def _check_own(algorithm: Algorithm, ranks: int, options: argparse.Namespace) -> None:
    """Raise ValueError if an algorithm is wrong."""
    hosts = in_order(ranks, options.ranks_per_host or 1) if algorithm.knows_hosts else None
    root = min(options.root, ranks - 1) if algorithm.primitive.rooted else 0
    check(algorithm, ranks, root, (options.segments or 2) if algorithm.pipelined else 1, hosts)


def _calibrated(options: argparse.Namespace) -> Path | None:
    """Return the output file of --calibrate; raise ValueError if other options are given."""
    if name := next((n for n in ("primitive", "file", "network", "set", "plot", "draw") if getattr(options, n)), None):
        raise ValueError(f"--calibrate cannot be combined with {'a primitive' if name == 'primitive' else f'--{name}'}")
    output: Path | None = options.output
    check_folder("-o", output)
    return output


def draw(path: Path, topology: str | None) -> None:
    """Write the picture of a topology."""
    if topology is None:
        raise ValueError(f"--draw {path} needs --topology")
    check_folder("--draw", path, ".svg")
    write_text(path, svg(topology))
    say_written(path)


def calibrate(output: Path | None) -> None:
    """Measure the network of COMM_WORLD, print it, and write it to a file."""
    from ..base.mpi import MPI

    # isort: split
    from ..api.abort import abort_on_exception
    from ..tune.environment import environment
    from .calibrate import calibrate as measured

    abort_on_exception()
    network, missing = measured(MPI.COMM_WORLD)
    where = environment(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(network, *(f"{name}: not measured, because there are no two such ranks" for name in missing), sep="\n")
        if output:
            write(network, output, environment=where, missing=missing)
            say_written(output)


if __name__ == "__main__":
    with until_the_reader_ends():
        main(sys.argv[1:])
