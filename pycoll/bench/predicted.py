"""Compare predictions of the simulation with measured times: ``mpiexec -n 4 python -m pycoll.bench.predicted``.

The network model is first calibrated with messages between pairs of ranks, or read from --network.  Then all algorithms
are timed alternately, and simulated in two ways.  The first simulation uses the measured start times of the ranks: a
barrier releases the ranks one after the other, and the order affects the use of links.  In the second simulation, all
ranks start at the same time.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pycoll
from pycoll.base.command_line import Parser, check_folder, in_words, printed_once, say_written
from pycoll.base.files import write_json, write_text
from pycoll.runtime.attach import attach
from pycoll.schedule.hosts import Hosts
from pycoll.simulate.calibrate import calibrate
from pycoll.simulate.network import Network, read
from pycoll.tune.benchmark_case import MEASURED, Case
from pycoll.tune.environment import environment
from pycoll.tune.options import add_budget, add_primitives, add_sizes, points, sizes
from pycoll.tune.timing import alternate, paced

from .results import table
from .starts import Starts

SIMULATED = 25  # maximum number of simulated calls of each algorithm
PRIMITIVES = ("bcast", "allgather", "allreduce")
COLUMNS = {
    "primitive": ("primitive", ""),
    "algorithm": ("algorithm", ""),
    "bytes": ("bytes", ""),
    "predicted": ("predicted (ms)", ".3f"),
    "median": ("measured (ms)", ".3f"),
    "error": ("error (%)", "+.1f"),
    "late": ("last rank late (ms)", ".3f"),
    "at_once": ("predicted at once (ms)", ".3f"),
    "min": ("least measured (ms)", ".3f"),
    "iterations": ("iterations", ""),
}


class SimulatedCase(NamedTuple):
    """An algorithm and a size to simulate."""

    primitive: str
    algorithm: str
    nbytes: int
    hosts: Hosts

    def seconds(self, network: Network, delays: np.ndarray) -> float:
        """Return the time of the slowest rank in seconds; `delays` has the delay of the start of each rank."""
        simulated = pycoll.simulate(
            self.primitive,
            algorithm=self.algorithm,
            ranks=len(delays),
            nbytes=self.nbytes,
            network=network,
            hosts=self.hosts,
            delays=dict(enumerate(delays.tolist())),
        )
        return float((simulated.ends - delays).max())


def measure(comm: MPI.Intracomm, primitive: str, size: int, network: Network, budget: float) -> list[dict]:
    """Return the records of one primitive at one size."""
    case = Case(comm, primitive, size)
    case.zero()
    calls = {name: case.call(name) for name in attach(comm).facts.algorithms_for(primitive)}
    starts = Starts(comm, calls)
    times = alternate(comm, starts.calls, budget, least=11, before=calls)
    hosts = attach(comm).facts.hosts
    return [
        record(SimulatedCase(primitive, name, case.nbytes, hosts), network, times[name], late)
        for name, late in starts.late().items()
    ]


def record(point: SimulatedCase, network: Network, times: np.ndarray, late: np.ndarray) -> dict:
    """Return the record of one point, with the medians of measured and predicted times in milliseconds."""
    every = -(-len(late) // SIMULATED)
    predicted = np.median([point.seconds(network, delays) for delays in late[::every]])
    median = np.median(times)
    return {
        "primitive": point.primitive,
        "algorithm": point.algorithm,
        "bytes": point.nbytes,
        "predicted": float(predicted) * 1e3,
        "median": float(median) * 1e3,
        "error": 100 * float(predicted / median - 1),
        "late": float(np.median(late.max(axis=1))) * 1e3,
        "at_once": point.seconds(network, np.zeros_like(late[0])) * 1e3,
        "min": float(times.min()) * 1e3,
        "iterations": len(times),
    }


def parse(comm: MPI.Intracomm, argv: list[str]) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    parser = Parser(prog="python -m pycoll.bench.predicted", description=__doc__)
    add_primitives(parser, MEASURED, ", ".join(PRIMITIVES))
    add_sizes(parser, "64K", "4M", 4)
    parser.add_argument("--network", metavar="FILE", type=Path, help="file of `python -m pycoll.simulate --calibrate`")
    add_budget(parser, 300.0)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the records to FILE")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="also write a Markdown table to FILE")
    tuned = attach(comm).tuned
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            options.sizes = sizes(options.minbytes, options.maxbytes, options.stepfactor)
            options.network = options.network and read(options.network)
            if comm.size < 2:
                raise ValueError(f"{comm.size} ranks: there is nothing to measure")
            check_folder("--json", options.json)
            check_folder("--markdown", options.markdown)
            if tuned:
                raise ValueError("a tuning file is in use, which changes segment lengths: set PYCOLL_TUNING=off")
        except (ValueError, OSError) as error:
            parser.error(in_words(error))
    return options


def main(argv: list[str]) -> None:
    """Calibrate, measure, simulate, and print the comparison."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    options = parse(comm, argv)
    network, missing = (options.network, []) if options.network else calibrate(comm)
    where = environment(comm)
    todo = points(options.primitives or PRIMITIVES, options.sizes)
    records = []
    for point, budget in paced(comm, todo, options.budget, "predicted"):
        records += measure(comm, *point, network, budget)
    if comm.rank == 0:
        if options.json:
            write_json(options.json, {"environment": where, "network": asdict(network), "records": records})
        if options.markdown:
            text = f"{where['mpi']}: {said(records)}\n\n{table(records, COLUMNS, 'github')}\n"
            write_text(options.markdown, text)
        print(network, *(f"{name}: not measured: no pair of ranks has such a link" for name in missing), sep="\n")
        print(f"\n{table(records, COLUMNS)}\n\n{said(records)}")
        say_written(options.json, options.markdown)


def said(records: list[dict]) -> str:
    """Summarize the errors of the predictions."""
    errors = np.abs([record["error"] for record in records])
    return (
        f"error: median {np.median(errors):.1f}%, {np.sum(errors <= 20)} of {len(errors)} within 20%, "
        f"worst {errors.max():.1f}%"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
