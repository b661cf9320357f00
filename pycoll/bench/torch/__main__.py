"""Time torch.distributed with pycoll and with gloo: ``mpiexec -n 2 python -m pycoll.bench.torch``.

Both backends are used in the same processes and timed alternately.  Each timed call follows an untimed call and a
barrier.  Times are medians of the slowest rank.  A size is that of the whole vector (the blocks of all ranks together);
for training steps, it is the size of the parameters.  ``gloo / pycoll`` above 1 means that pycoll is faster.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

import pycoll
import pycoll.torch
from pycoll.base.command_line import Parser, check_folder, printed_once, say_written
from pycoll.base.files import write_json
from pycoll.tune.environment import environment
from pycoll.tune.options import add_budget, nbytes
from pycoll.tune.timing import alternate, ratio, shares

from ..cores import core_share
from ..machine import disturbed
from ..plots.backends import plot
from ..plots.command import write_plot
from ..results import document, table
from .collectives import COLLECTIVES, TorchCollective
from .training import STEPS, parameter_bytes

BACKENDS = ("pycoll", "gloo")
SIZES = "8,512,4K,16K,64K,256K,1M,4M,16M,64M"
COLUMNS = {
    "call": ("call", ""),
    "bytes": ("bytes", ""),
    "iterations": ("iterations", ""),
    "pycoll": ("pycoll (us)", ".1f"),
    "gloo": ("gloo (us)", ".1f"),
    "ratio": ("gloo / pycoll", ".2f"),
    "wrong": ("#wrong", ""),
}


class TorchMeasurement(NamedTuple):
    """A call that is measured, and its size in bytes."""

    call: str
    nbytes: int


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    parser = Parser(prog="python -m pycoll.bench.torch", description=__doc__)
    names = [*COLLECTIVES, *STEPS]
    parser.add_argument("calls", nargs="*", metavar="call", help=f"of: {', '.join(names)} (default: all)")
    parser.add_argument("--sizes", default=SIZES, help="sizes in bytes, separated by commas (%(default)s)")
    add_budget(parser, 120.0)
    parser.add_argument("-n", "--iters", type=int, help="iterations (default: until the median is stable)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the records to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the times to FILE: .png, .svg or .pdf")
    options = parser.parse_args(argv)
    if unknown := set(options.calls) - set(names):
        parser.error(f"{min(unknown)!r} is not one of: {', '.join(names)}")
    if options.iters is not None and options.iters < 2:
        parser.error(f"--iters {options.iters} is less than 2")
    try:
        options.sizes = [nbytes(text) for text in options.sizes.split(",")]
        if options.plot and len(set(options.sizes)) < 2:
            raise ValueError("--plot needs at least two --sizes")
        check_folder("--json", options.json)
        check_folder("--plot", options.plot, ".png", ".svg", ".pdf")
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    options.calls = options.calls or names
    return options


def measured(comm: MPI.Intracomm, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the record of each call and size; all ranks of `comm` call this."""
    groups = {"pycoll": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    points = [TorchMeasurement(call, size) for call in options.calls if call in COLLECTIVES for size in options.sizes]
    points += [TorchMeasurement(call, parameter_bytes(call)) for call in options.calls if call in STEPS]
    for point, seconds in zip(points, shares(comm, options.budget, [point.nbytes for point in points])):
        if point.call in COLLECTIVES:
            case = TorchCollective(point.call, point.nbytes)
            wrong = comm.allreduce(case.differences(groups))
            calls = {name: case.bound(groups[name]) for name in BACKENDS}
        else:
            step = STEPS[point.call]
            calls, wrong = {name: step(groups[name]) for name in BACKENDS}, None
        times = alternate(comm, calls, seconds, options.iters)
        yield record(point, times) | {"wrong": wrong}


def record(point: TorchMeasurement, times: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the record of a call: for each backend, the median, minimum and 99th percentile in microseconds."""
    found: dict[str, Any] = {"call": point.call, "bytes": point.nbytes, "iterations": len(times["pycoll"])}
    for name, seconds in times.items():
        found[name] = float(np.median(seconds)) * 1e6
        found[f"{name}_min"], found[f"{name}_p99"] = (float(np.percentile(seconds, at)) * 1e6 for at in (0, 99))
    return found | {"ratio": ratio(times["gloo"], times["pycoll"])}


def share_cores(comm: MPI.Intracomm) -> None:
    """Limit each rank to its share of the cores of its host, unless the user has set the number of threads."""
    share = core_share(comm)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(share)


def main(argv: list[str]) -> int:
    """Measure, print the times and ratios; return 1 if results of pycoll and gloo differ."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parse(argv)
    share_cores(comm)
    dist.init_process_group("pycoll")
    where = environment(comm) | {"torch": torch.__version__}
    records = []
    for found in measured(comm, options):
        records.append(found)
        if comm.rank == 0 and options.json:  # after each record, so that an interrupted run leaves results
            write_json(options.json, document(where, records))
    if comm.rank == 0:
        print(table(records, COLUMNS))
        times = [{"median": each[name], "min": each[f"{name}_min"]} for each in records for name in BACKENDS]
        if warning := disturbed(times):
            print(f"\n{warning}")
        if options.plot:
            write_plot(plot, options.plot, [document(where, records)])
        say_written(options.json, options.plot)
    dist.destroy_process_group()
    return int(any(found["wrong"] for found in records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
