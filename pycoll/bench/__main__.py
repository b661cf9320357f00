"""Time the collectives of pycoll and MPI: ``mpiexec -n 4 python -m pycoll.bench``."""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import sys
from itertools import groupby

import numpy as np

import pycoll
from pycoll.base.command_line import printed_once, say_written
from pycoll.base.files import write_json
from pycoll.tune.environment import environment
from pycoll.tune.timing import paced

from .device import gpu_environment, on_gpu, path_environment
from .machine import alone, disturbed, oversubscribed
from .measure import measure, points
from .options import parse
from .results import document, write_csv
from .tables import nccl_table, summary


def main(argv: list[str]) -> int:
    """Measure and print; return 1 if a result was wrong or nothing was measured."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parse(argv, comm.size)
    pycoll.attach(comm)
    xp = on_gpu(comm) if options.device == "cuda" else np
    where = environment(comm)
    if options.device == "cuda":
        where |= gpu_environment() | path_environment()
    say(comm, "\n".join(f"# {key}: {_in_words(value)}" for key, value in where.items()))
    if warning := alone(comm.size):
        say(comm, f"# {warning}")
    rows = paced(comm, points(options), options.budget, "bench")
    records: list[dict] = []
    for primitive, of_primitive in groupby(rows, lambda row: row[0].primitive):
        before = len(records)
        for point, budget in of_primitive:
            records += measure(comm, point, options, xp, budget)
        if comm.rank == 0:  # write intermediate results, in case the run is aborted
            write(options, where, records)
        say(comm, f"\n# {primitive}\n{nccl_table(records[before:], options)}")
    if not options.validate_only:
        say(comm, f"\n# Fastest algorithms (within 5%)\n{summary(records)}")
    for warning in filter(None, [oversubscribed([where]), disturbed(records)]):
        say(comm, f"\n# {warning}")
    if comm.rank == 0:
        say_written(options.json, options.csv, options.plot)
    compared = [record["wrong"] for record in records if record["wrong"] is not None]
    say(comm, f"\n# {sum(compared) or 'No'} wrong results" if compared else "\n# No results were compared")
    return int(sum(compared) > 0 or not records)


def _in_words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def say(comm: MPI.Intracomm, text: str) -> None:
    """Print on rank 0 only."""
    if comm.rank == 0:
        print(text, flush=True)


def write(options: argparse.Namespace, where: dict, records: list[dict]) -> None:
    """Write the output files named by the options."""
    content = document(where, records)
    if options.json:
        write_json(options.json, content)
    if options.csv:
        write_csv(options.csv, records)
    if options.plot:
        from .plots.document import draw  # here, because importing matplotlib takes a second

        draw(content, options.plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
