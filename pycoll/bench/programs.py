"""Time the calls that real programs make most: ``mpiexec -n 2 python -m pycoll.bench.programs``.

In a profile of 17 applications that use mpi4py, nearly all collectives had at most 4 KiB.  Many took Python objects,
and many were on Cartesian communicators or on parts of COMM_WORLD.  Those that prevail in one application are listed
under its name.  The calls are made with the communicators of mpi4py and with those of pycoll, as in
`pycoll.bench.calls`; the numbers are time of MPI / time of pycoll.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import sys
from collections.abc import Callable
from typing import Any

import pycoll
from pycoll.base.command_line import Parser, printed_once

from .calls import is_sized, measure, present

SIZES = [8, 512, 4096]  # bytes of arrays
KINDS: dict[str, Callable[[Any], Any]] = {
    "world": lambda comm: comm.Dup(),
    "Cartesian": lambda comm: comm.Create_cart(MPI.Compute_dims(comm.size, 2), [True, False]),
    "split": lambda comm: comm.Split(0, comm.rank),
}
PROGRAMS = {
    "pylops-mpi": [("Cartesian", "allreduce int"), ("world", "allgather int"), ("Cartesian", "Allreduce")],
    "mpi4py-fft": [("Cartesian", "Alltoallw"), ("Cartesian", "Allreduce")],
    "ASE": [("world", "bcast array"), ("world", "allreduce float")],
    "UltraNest": [("world", "bcast array"), ("world", "gather tuple"), ("world", "bcast dict")],
    "others": [
        (kind, call)
        for kind in ("Cartesian", "split")
        for call in ("allreduce float", "bcast array", "gather tuple", "Allreduce", "Bcast", "Allgather", "Gather")
    ],
}


def main(argv: list[str]) -> int:
    """Measure all calls, and print the ratios."""
    world = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog="python -m pycoll.bench.programs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call and size (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the records to FILE")
    with printed_once(world):
        options = parser.parse_args(argv)
    ours = pycoll.Comm(world)
    records = []
    for kind, make in KINDS.items():
        comms = make(world), make(ours)
        calls = sorted({call for program in PROGRAMS.values() for on, call in program if on == kind})
        for call in calls:
            for size in SIZES if is_sized(call) else [0]:
                record = measure(*comms, call, size, options.seconds, False)
                records.append({**record, "call": f"{call}, {kind}", "programs": _callers(kind, call)})
        for comm in comms:
            comm.Free()
    present(world, [records], SIZES, options.json)
    return 0


def _callers(kind: str, call: str) -> list[str]:
    """Return the programs that make a call on a communicator of this kind."""
    return [program for program, calls in PROGRAMS.items() if (kind, call) in calls]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
