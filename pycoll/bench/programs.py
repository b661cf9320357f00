"""Time the calls that real programs make: ``mpiexec -n 2 python -m pycoll.bench.programs``.

`program_calls.json` lists the collectives of programs that use mpi4py, as `pycoll.bench.recorded` has counted them.
Those of at most 4 KiB are made with the communicators of mpi4py and with those of pycoll, as in `pycoll.bench.calls`;
the numbers are time of MPI / time of pycoll.  In the second table, they are those of all these calls of a program.
For a program of yours, give the file that `pycoll.bench.recorded` has written.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pycoll
from pycoll.base.command_line import Parser, in_words, printed_once

from .calls import CALLS, OBJECT_TYPES, measure, present, ratios
from .results import table

LIST = Path(__file__).with_name("program_calls.json")
SIZES = [8, 64, 512, 4096]  # bytes; a call has the least of these that is not less than its own
KINDS: dict[str, Callable[[Any], Any]] = {
    "world": lambda comm: comm.Dup(),
    "Cartesian": lambda comm: comm.Create_cart(MPI.Compute_dims(comm.size, 2), [True, False]),
    "part": lambda comm: comm.Split(0, comm.rank),
}
SAME_KIND = {"copy": "world"}
COLUMNS = {
    "program": ("program", ""),
    "version": ("version", ""),
    "times": ("calls", ""),
    "timed": ("timed here", ".0%"),
    "ratio": ("ratio", ".2f"),
}


class Case(NamedTuple):
    """A kind of call: on which communicator, the method and the type of its argument, and the bytes."""

    comm: str
    call: str
    size: int


def case_of(record: dict[str, Any]) -> Case | None:
    """Return the case of a record of the list; None if it is not timed here."""
    method, kind, comm = record["method"], record["type"], SAME_KIND.get(record["comm"], record["comm"])
    kind = "array" if kind == "ndarray" else kind
    size = next((size for size in SIZES if 0 <= record["bytes"] <= size), None)
    known = method in CALLS if kind == "buffer" else kind in OBJECT_TYPES or not kind
    call = method if kind == "buffer" else f"{method} {kind}".strip()
    return Case(comm, call, size) if known and size and comm in KINDS else None


def cases_of(calls: list[dict[str, Any]]) -> Counter[Case]:
    """Return how often a program makes the calls of each case."""
    found: Counter[Case] = Counter()
    for record in calls:
        if case := case_of(record):
            found[case] += record["times"]
    return found


def summary(name: str, program: dict[str, Any], timed: dict[Case, dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a program."""
    cases, times = cases_of(program["calls"]), sum(record["times"] for record in program["calls"])
    its, own = (sum(count * timed[case][key] for case, count in cases.items()) for key in ("mpi", "comm"))
    row = {"program": name, "version": program["version"], "times": times}
    return row | {"timed": cases.total() / times if times else None, "ratio": its / own if own else None}


def main(argv: list[str]) -> int:
    """Time all cases, and print the ratios."""
    world = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog="python -m pycoll.bench.programs", description=__doc__)
    parser.add_argument("list", nargs="?", type=Path, default=LIST, help="a file with a list (default: that of pycoll)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call and size (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the records to FILE")
    with printed_once(world):
        options = parser.parse_args(argv)
        try:
            programs = json.loads(options.list.read_text())
        except OSError as error:
            parser.error(in_words(error))
        except ValueError as error:
            parser.error(f"{options.list}: {error}")
    ours = pycoll.Comm(world)
    cases = {case for program in programs.values() for case in cases_of(program["calls"])}
    timed: dict[Case, dict[str, Any]] = {}
    for kind, make in KINDS.items():
        comms = make(world), make(ours)
        for case in sorted(case for case in cases if case.comm == kind):
            record = measure(*comms, case.call, case.size, options.seconds, False)
            timed[case] = record | {"call": f"{case.call}, {kind}"}
        for comm in comms:
            comm.Free()
    rows = [summary(name, program, timed) for name, program in programs.items()]
    records = [*timed.values()]
    present(world, [ratios(records, SIZES), table(rows, COLUMNS)], records + rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
