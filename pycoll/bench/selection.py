"""Measure how good the choices of pycoll are: ``mpiexec -n 4 python -m pycoll.bench.selection``.

It works with or without a tuning file.  The candidates are all algorithms and the native MPI collective, called through
pycoll with `algorithm=`.  They are timed alternately with the choice of pycoll.  If the choice seems more than 10%
slower than the best candidate, it is timed again for longer, with all candidates near the best.  The reason is that the
minimum of noisy medians is biased.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import sys

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.runtime.attach import attach
from pycoll.runtime.tuned import tuning_state
from pycoll.schedule.registry import NATIVE
from pycoll.selection.tuning_file import SHARED_MEMORY, Candidate
from pycoll.tune.benchmark_case import MEASURED, Case
from pycoll.tune.environment import environment
from pycoll.tune.options import add_budget, add_primitives, add_sizes, points, sizes
from pycoll.tune.timing import alternate, comparable, paced, race, updated

from .results import table, write_results

CLOSE = 1.1  # ratio to the best time up to which a candidate counts as equally good
COLUMNS = {
    "primitive": ("primitive", ""),
    "bytes": ("bytes", ""),
    "chosen": ("chosen", ""),
    "best": ("best", ""),
    "time": ("chosen (us)", ".2f"),
    "least": ("best (us)", ".2f"),
    "ratio": ("chosen / best", ".2f"),
}


def measure(comm: MPI.Intracomm, primitive: str, size: int, budget: float) -> dict:
    """Return the record of one point."""
    case = Case(comm, primitive, size)
    case.zero()
    explained = pycoll.explain(primitive, nbytes=case.chosen_by, comm=comm)
    chosen = str(Candidate(SHARED_MEMORY if explained.shared_memory else explained.algorithm, explained.segment))
    # omit the chosen algorithm under its own name: it would run the same program
    names = [name for name in [*attach(comm).facts.algorithms_for(primitive), NATIVE] if name != chosen]
    calls = {chosen: case.call(None)} | {name: case.call(name) for name in names}
    found = race(comm, calls, 0.6 * budget)
    best = min(found, key=found.__getitem__)
    auto, least = found[chosen], found[best]
    if auto > CLOSE * least:
        near = {name for name, seconds in found.items() if seconds <= CLOSE * least} | {chosen}
        again = alternate(comm, {name: calls[name] for name in calls if name in near}, 0.4 * budget, least=11)
        found = updated(found, comparable(again))
        best = min(near, key=found.__getitem__)
        auto, least = found[chosen], found[best]
    return {
        "primitive": primitive,
        "bytes": case.nbytes,
        "chosen": chosen,
        "best": best,
        "time": auto * 1e6,
        "least": least * 1e6,
        "ratio": auto / least,
        "all": {name: seconds * 1e6 for name, seconds in found.items()},
    }


def main(argv: list[str]) -> None:
    """Measure all points, and print the results."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog="python -m pycoll.bench.selection", description=__doc__)
    add_primitives(parser, MEASURED)
    add_sizes(parser, "8", "64M", 3)
    add_budget(parser, 300.0)
    parser.add_argument("--json", metavar="FILE", help="also write the records to FILE")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            steps = sizes(options.minbytes, options.maxbytes, options.stepfactor)
            steps = [*steps, *[options.maxbytes] * (steps[-1] < options.maxbytes)]
        except ValueError as error:
            parser.error(str(error))
    where = environment(comm) | {"tuning": tuning_state(attach(comm))}
    todo = points(options.primitives or MEASURED, steps)
    records = [measure(comm, *point, budget) for point, budget in paced(comm, todo, options.budget, "selection")]
    if comm.rank == 0:
        print(table(records, COLUMNS))
        print(said(records), f"tuning: {where['tuning']}", sep="\n")
        write_results(options.json, {"environment": where, "records": records})


def said(records: list[dict]) -> str:
    """Return a summary of how many choices are good."""
    ratios = sorted(record["ratio"] for record in records)
    good = sum(ratio <= CLOSE for ratio in ratios)
    return (
        f"{good} of {len(ratios)} points ({good / len(ratios):.0%}) within 10% of the best; "
        f"worst {ratios[-1]:.2f} times the best time"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
