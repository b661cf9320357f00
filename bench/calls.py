"""Times calls as programs write them, as time of MPI / time of pycoll: ``mpiexec -n 2 python -m bench.calls``.

Each call is made by the communicator of mpi4py, by `pycoll.Comm` with the algorithm that the rules name, and by
`pycoll.Comm` with none named.  They are called many times in a row, as in a program's loop, in turn with each other; a
time is the slowest rank's.  New views begin at another address each time: more addresses than pycoll keeps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.base.files import write_json
from pycoll.selection.choices import primitive_called
from pycoll.selection.rules import choose
from pycoll.tune.environment import environment
from pycoll.tune.options import nbytes

from .results import document, table

ADDRESSES, STEP = 1024, 16  # of new views, and how many elements lie between two
BLOCK = 2e-3  # seconds that calls in a row take
Row = Callable[[Any, "Buffers", dict[str, Any]], object]


class Buffers:
    """What the calls of one size have as arguments."""

    def __init__(self, comm: MPI.Intracomm, size: int) -> None:
        self.count = max(comm.size, size // 4 // comm.size * comm.size)  # float32 elements
        self.x, self.y = np.ones(self.count, np.float32), np.zeros(self.count, np.float32)
        length = self.count + ADDRESSES * STEP
        self.a, self.b = np.ones(length, np.float32), np.zeros(length, np.float32)
        self.blocks = np.zeros(self.count * comm.size, np.float32)
        self.counts = [self.count] * comm.size
        self._starts: Iterator[int] = cycle(range(0, ADDRESSES * STEP, STEP))

    def window(self) -> slice:
        """Another place in `a` and `b` than that of the calls before."""
        start = next(self._starts)
        return slice(start, start + self.count)


def _new_views(comm: Any, at: Buffers, named: dict[str, Any]) -> None:
    window = at.window()
    comm.Allreduce(at.a[window], at.b[window], **named)


ROWS: dict[str, tuple[str, Row]] = {
    "Allreduce(x, y)": ("Allreduce", lambda comm, at, named: comm.Allreduce(at.x, at.y, **named)),
    "Allreduce(a[i:j], b[i:j])": ("Allreduce", _new_views),
    "Allreduce([x, FLOAT], [y, FLOAT])": (
        "Allreduce",
        lambda comm, at, named: comm.Allreduce([at.x, MPI.FLOAT], [at.y, MPI.FLOAT], **named),
    ),
    "Allreduce(IN_PLACE, [y, FLOAT])": (
        "Allreduce",
        lambda comm, at, named: comm.Allreduce(MPI.IN_PLACE, [at.y, MPI.FLOAT], **named),
    ),
    "Allreduce(IN_PLACE, y)": ("Allreduce", lambda comm, at, named: comm.Allreduce(MPI.IN_PLACE, at.y, **named)),
    "Bcast(a[i:j])": ("Bcast", lambda comm, at, named: comm.Bcast(at.a[at.window()], **named)),
    "Allgatherv(x, [r, counts])": (
        "Allgatherv",
        lambda comm, at, named: comm.Allgatherv(at.x, [at.blocks, at.counts], **named),
    ),
    "Reduce_scatter_block(IN_PLACE, y)": (
        "Reduce_scatter_block",
        lambda comm, at, named: comm.Reduce_scatter_block(MPI.IN_PLACE, at.y, **named),
    ),
    "Iallreduce(x, y).Wait()": ("Allreduce", lambda comm, at, named: comm.Iallreduce(at.x, at.y, **named).Wait()),
    "Barrier()": ("Barrier", lambda comm, at, named: comm.Barrier(**named)),
}
COLUMNS = {
    "call": ("call", ""),
    "bytes": ("bytes", ""),
    "mpi": ("mpi (us)", ".2f"),
    "named": ("named (us)", ".2f"),
    "comm": ("Comm (us)", ".2f"),
    "mpi_named": ("mpi / named", ".2f"),
    "mpi_comm": ("mpi / Comm", ".2f"),
}


def measure(comm: MPI.Intracomm, ours: pycoll.Comm, row: str, size: int, seconds: float) -> dict[str, Any]:
    """Median microseconds of one call, made in each of three ways."""
    method, call = ROWS[row]
    primitive = primitive_called(method)
    chosen_by = size // comm.size if primitive == "reduce_scatter" else size
    named = {"algorithm": choose(primitive, chosen_by, comm.size)}
    at = Buffers(comm, size)
    ways: dict[str, tuple[Any, dict[str, Any]]] = {"mpi": (comm, {}), "named": (ours, named), "comm": (ours, {})}
    in_a_row = {name: _in_a_row(comm, lambda w=way: call(w[0], at, w[1])) for name, way in ways.items()}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    orders = np.random.default_rng(0)
    for _ in range(max(5, round(seconds / BLOCK / len(ways)))):
        for name in orders.permutation(list(ways)):
            at.y[...] = 0  # what is reduced in place grows
            which, given = ways[name]
            times = in_a_row[name]
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(times):
                call(which, at, given)
            spent[name].append((time.perf_counter() - start) / times)
    slowest = {name: np.array(comm.allgather(times)).max(axis=0) for name, times in spent.items()}
    medians = {name: float(np.median(times)) * 1e6 for name, times in slowest.items()}
    ratios = {f"mpi_{name}": medians["mpi"] / medians[name] for name in ("named", "comm")}
    return {"call": row, "bytes": at.count * 4 if primitive != "barrier" else 0, **medians, **ratios}


def _in_a_row(comm: MPI.Intracomm, call: Callable[[], object]) -> int:
    """How many calls take about `BLOCK` seconds; the same on all ranks."""
    for _ in range(5):
        call()
    start = time.perf_counter()
    for _ in range(5):
        call()
    took = (time.perf_counter() - start) / 5
    return int(comm.allreduce(max(1, round(BLOCK / took)), MPI.MIN))


def main(argv: list[str]) -> int:
    """Measure and print."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--sizes", default="64,4K,64K,1M", help="bytes, separated by commas (%(default)s)")
    parser.add_argument("--calls", default="", help="only calls whose names contain this (all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each call and size (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the records there")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            options.sizes = [nbytes(text) for text in options.sizes.split(",")]
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"--sizes: {error}")
        rows = [row for row in ROWS if options.calls in row]
        if not rows:
            parser.error(f"--calls {options.calls!r} is in none of: {', '.join(ROWS)}")
    ours = pycoll.Comm(comm)
    records = []
    for row in rows:
        for size in options.sizes if row != "Barrier()" else [0]:
            records.append(measure(comm, ours, row, size, options.seconds))
    if comm.rank == 0:
        print(table(records, COLUMNS))
        if options.json:
            write_json(options.json, document(environment(comm), records))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
