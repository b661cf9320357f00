"""Search for a schedule of a collective on a network of links between ranks, and compare it with the catalogue.

Times are simulated.  The schedule is proved before it is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from ..base.command_line import Parser, check_folder, say_written, until_the_reader_ends
from ..base.progress_bar import progress_bar
from ..schedule.own_file import check
from ..schedule.registry import algorithms_of
from ..simulate import simulate
from ..simulate.network import Network
from ..simulate.options import add_parameters, network_of
from ..tune.options import nbytes, size_label
from . import NAME, SERVED, Synthesized, synthesize


def parser() -> Parser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.synthesize", description=__doc__, allow_abbrev=False)
    options.add_argument("primitive", help=f"one of: {', '.join(SERVED)}")
    options.add_argument(
        "-t", "--topology", required=True, help="links between ranks: torus:NxNx..., or FILE.json with links"
    )
    options.add_argument("-b", "--nbytes", type=nbytes, default="1M", help="size of the whole vector (%(default)s)")
    options.add_argument(
        "--chunks", type=int, default=1, help="blocks for each rank, of all-reduce and broadcast (%(default)s)"
    )
    options.add_argument("--seeds", type=int, default=4, help="searches for each duration of a round (%(default)s)")
    options.add_argument("-r", "--root", type=int, default=0, help="rank of the root (%(default)s)")
    add_parameters(options)
    options.add_argument("-o", "--output", type=Path, metavar="FILE", help="the .json file to write the schedule to")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Search, print the times, and write the schedule."""
    grammar = parser()
    options = grammar.parse_args(argv)
    output: Path | None = options.output
    with grammar.refusing(OSError, ValueError):
        check_folder("-o", output)
        if output and (output.suffix != ".json" or not output.stem.isidentifier()):
            raise ValueError(f"-o {output} is not the name of an algorithm with .json: letters, digits and _")
        network = network_of(options)
        found = synthesize(
            options.topology,
            options.primitive,
            nbytes=options.nbytes,
            chunks=options.chunks,
            seeds=options.seeds,
            root=options.root,
            network=network,
            name=output.stem if output else NAME,
            progress=True,
        )
        assert found.algorithm.only
        check(found.algorithm, *found.algorithm.only)
        if output:
            found.save(output)
        text = report(found, options.topology, options.nbytes, network)
    print(text)
    say_written(output)


def report(found: Synthesized, topology: str, nbytes: int, network: Network) -> str:
    """Return the times of the schedule, of the fastest algorithm of the catalogue, and of the bound."""
    assert found.algorithm.only
    ranks, root = found.algorithm.only
    primitive = found.algorithm.primitive.name
    setting = {"ranks": ranks, "nbytes": nbytes, "network": network, "topology": topology, "root": root}
    times = {
        name: simulate(primitive, algorithm=name, **setting).time  # type: ignore[arg-type]
        for name in progress_bar([*algorithms_of(primitive)], "simulate", "algorithm")
    }
    fastest = min(times, key=times.__getitem__)
    rows = {
        found.algorithm.name: found.time,
        f"{fastest}, the fastest of the catalogue": times[fastest],
        "bandwidth bound": found.bound,
    }
    cells = [[name, f"{time * 1e6:,.1f}", f"{time / found.bound:.2f}"] for name, time in rows.items()]
    columns = {"headers": ["", "time (µs)", "time / bound"], "colalign": ("left", "right", "right")}
    title = f"{primitive} of {size_label(nbytes)} on {ranks} ranks of {topology}, simulated"
    return f"{title}:\n{tabulate(cells, disable_numparse=True, **columns)}"


if __name__ == "__main__":
    with until_the_reader_ends():
        main(sys.argv[1:])
