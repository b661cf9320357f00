"""Time the collectives of the MPI library itself, and compare runs before and after `python -m pycoll.tune --export`.

``mpiexec -n 4 python -m pycoll.bench.exported -o before.json`` adds a run to the file, because one run on a noisy
machine says little.  With the rules in use, the same command with ``-o after.json`` makes the other file.  Then
``python -m pycoll.bench.exported --compare before.json after.json`` compares the medians of all runs.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import json
import sys
from pathlib import Path

import numpy as np

import pycoll
from pycoll.base.command_line import Parser, check_folder, in_words, printed_once, say_written
from pycoll.base.files import write_json
from pycoll.runtime import native
from pycoll.tune.benchmark_case import MEASURED, Case
from pycoll.tune.environment import environment
from pycoll.tune.options import add_budget, add_primitives, add_sizes, points, size_label, sizes
from pycoll.tune.timing import alternate, paced

from .results import table

PROG = "python -m pycoll.bench.exported"
COLUMNS = {
    "primitive": ("primitive", ""),
    "size": ("size", ""),
    "before": ("before (us)", ".2f"),
    "after": ("after (us)", ".2f"),
    "ratio": ("before / after", ".2f"),
}
Times = dict[tuple[str, int], float]


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; errors exit the program."""
    parser = Parser(prog=PROG, description=__doc__)
    add_primitives(parser, MEASURED)
    add_sizes(parser, "8", "1M", 2)
    add_budget(parser, 60.0)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to which the times are added")
    parser.add_argument("--compare", nargs=2, metavar="FILE", type=Path, help="compare the times in two files")
    options = parser.parse_args(argv)
    try:
        options.sizes = sizes(options.minbytes, options.maxbytes, options.stepfactor)
        check_folder("--output", options.output)
        options.times = [times(path) for path in options.compare or ()]
        options.before = []
        if options.output and options.output.exists():
            times(options.output)  # else it is something else
            options.before = json.loads(options.output.read_text())
    except (ValueError, OSError) as error:
        parser.error(in_words(error))
    return options


def measured(comm: MPI.Intracomm, options: argparse.Namespace) -> list[dict]:
    """Return a record of each point with the median of the slowest rank's times."""
    todo = points(options.primitives or MEASURED, options.sizes)
    records = []
    for (primitive, size), budget in paced(comm, todo, options.budget, "timing"):
        case = Case(comm, primitive, size)
        case.zero()
        call = case.call_native()
        assert call  # every library has float32
        times = alternate(comm, {"": call}, budget, least=11)[""]
        records.append({"primitive": primitive, "bytes": case.nbytes, "seconds": float(np.median(times))})
    return records


def times(path: Path) -> Times:
    """Return the median of all runs for each point in the file; raise ValueError if it is something else."""
    found: dict[tuple[str, int], list[float]] = {}
    try:
        for run in json.loads(path.read_text()):
            for one in run["records"]:
                found.setdefault((one["primitive"], one["bytes"]), []).append(one["seconds"])
    except (ValueError, TypeError, KeyError):
        found = {}
    if not found:
        raise ValueError(f"{path} was not written by {PROG}")
    return {point: float(np.median(times)) for point, times in found.items()}


def comparison(before: Times, after: Times) -> list[dict]:
    """Return a row for each point that both files have."""
    return [
        {
            "primitive": primitive,
            "size": size_label(nbytes),
            "before": seconds * 1e6,
            "after": after[primitive, nbytes] * 1e6,
            "ratio": seconds / after[primitive, nbytes],
        }
        for (primitive, nbytes), seconds in before.items()
        if (primitive, nbytes) in after
    ]


def main(argv: list[str]) -> None:
    """Time the collectives, or compare two files."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parse(argv)
    if options.compare:
        if comm.rank == 0:
            print(table(comparison(*options.times), COLUMNS))
        return
    where = environment(comm)
    records = measured(comm, options)
    if comm.rank == 0:
        if options.output:
            write_json(options.output, [*options.before, {"environment": where, "records": records}])
        print(
            *(f"{r['primitive']:15}{size_label(r['bytes']):>10}{1e6 * r['seconds']:12.2f} us" for r in records),
            sep="\n",
        )
        print(f"with {native.library()}")
        say_written(options.output)


if __name__ == "__main__":
    main(sys.argv[1:])
