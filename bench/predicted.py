"""The simulation's predictions beside measured times: ``mpiexec -n 4 python -m bench.predicted``.

The network is calibrated first, by messages between two ranks alone, or read from --network.  Then every algorithm is
timed, in turn with the others, and simulated.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll import engine
from pycoll.commands import Parser, check_folder
from pycoll.files import write_atomically, write_json
from pycoll.schedule import algorithms_of
from pycoll.simulate.calibrate import calibrate
from pycoll.simulate.network import Network, read
from pycoll.tune.cases import MEASURED, Case
from pycoll.tune.environment import environment
from pycoll.tune.options import add_sizes, silent_but_first, sizes
from pycoll.tune.progressbar import shown
from pycoll.tune.timing import alternate, shares

from .results import table

PRIMITIVES = ("bcast", "allgather", "allreduce")
COLUMNS = {
    "primitive": ("primitive", ""),
    "algorithm": ("algorithm", ""),
    "bytes": ("bytes", ""),
    "predicted": ("predicted (ms)", ".3f"),
    "median": ("measured (ms)", ".3f"),
    "min": ("least (ms)", ".3f"),
    "iterations": ("iterations", ""),
    "error": ("error (%)", "+.1f"),
}


def measure(comm: MPI.Intracomm, primitive: str, size: int, network: Network, budget: float) -> list[dict]:
    """The records of one primitive at one size, milliseconds."""
    case = Case(comm, primitive, size)
    case.zero()
    names = list(algorithms_of(primitive))
    times = alternate(comm, {name: case.call(name) for name in names}, budget, least=11)
    records = []
    for name in names if comm.rank == 0 else ():
        hosts = engine.attach(comm).hosts
        told = pycoll.simulate(
            primitive, algorithm=name, ranks=comm.size, nbytes=case.nbytes, network=network, hosts=hosts
        )
        median = float(np.median(times[name]))
        records.append(
            {
                "primitive": primitive,
                "algorithm": name,
                "bytes": case.nbytes,
                "predicted": told.time * 1e3,
                "median": median * 1e3,
                "min": float(times[name].min()) * 1e3,
                "iterations": len(times[name]),
                "error": 100 * (told.time / median - 1),
            }
        )
    return records


def parse(comm: MPI.Intracomm, argv: list[str]) -> argparse.Namespace:
    """The command line; what is wrong with it ends the program."""
    parser = Parser(prog="python -m bench.predicted", description=__doc__)
    parser.add_argument("primitives", nargs="*", metavar="primitive", help=f"(default: {', '.join(PRIMITIVES)})")
    add_sizes(parser, "64K", "4M", 4)
    parser.add_argument("--network", metavar="FILE", type=Path, help="of `python -m pycoll.simulate --calibrate`")
    parser.add_argument("--budget", type=float, default=300.0, help="about how many seconds it takes (%(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the records there")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="and as a table there")
    with silent_but_first(comm):
        options = parser.parse_args(argv)
        options.primitives = options.primitives or PRIMITIVES
        try:
            options.sizes = sizes(options.minbytes, options.maxbytes, options.stepfactor)
            options.network = options.network and read(options.network)
            if wrong := set(options.primitives) - set(MEASURED):
                raise ValueError(f"{', '.join(sorted(wrong))}: not among {', '.join(MEASURED)}")
            if comm.size < 2 or not options.budget > 0:
                raise ValueError(f"{comm.size} ranks, --budget {options.budget}: there is nothing to be measured")
            check_folder("--json", options.json)
            check_folder("--markdown", options.markdown)
            if engine.attach(comm).tuned:
                raise ValueError("a tuning file is in use, which changes segments: set PYCOLL_TUNING=off")
        except (ValueError, OSError) as error:
            parser.error(str(error))
    return options


def main(argv: list[str]) -> None:
    """Calibrate, measure, simulate and print."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    options = parse(comm, argv)
    network, missing = (options.network, []) if options.network else calibrate(comm)
    where = environment(comm)
    todo = [(name, size) for name in options.primitives for size in (options.sizes if name != "barrier" else [0])]
    records = []
    for point, budget in zip(shown(todo, comm, "predicted"), shares(comm, options.budget, [size for _, size in todo])):
        records += measure(comm, *point, network, budget)
    if comm.rank == 0:
        if options.json:
            write_json(options.json, {"environment": where, "network": asdict(network), "records": records})
        if options.markdown:
            text = f"{where['mpi']}: {said(records)}\n\n{table(records, COLUMNS, 'github')}\n"
            write_atomically(options.markdown, lambda file: file.write(text.encode()))
        print(network, *(f"{name}: not measured, no two such ranks" for name in missing), sep="\n")
        print(f"\n{table(records, COLUMNS)}\n\n{said(records)}")


def said(records: list[dict]) -> str:
    """How good the predictions are."""
    errors = np.abs([record["error"] for record in records])
    return (
        f"error: median {np.median(errors):.1f} %, {np.sum(errors <= 20)} of {len(errors)} within 20 %, "
        f"worst {errors.max():.1f} %"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
