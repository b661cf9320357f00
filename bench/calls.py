"""Time calls as in user programs, and print time of MPI / time of pycoll: ``mpiexec -n 2 python -m bench.calls``.

Each call is made in four ways: with the communicator of mpi4py, with `pycoll.Comm` and the algorithm that the rules
select, with `pycoll.Comm` and no named algorithm, and with an empty Python class, whose methods only call those of
mpi4py.  No method written in Python is faster than the last one.  The ways alternate; each makes the call many times in
a row, as in a loop of a program.  The reported time is that of the slowest rank.  A view ``a[i:j]`` is one of 32
windows, which are used in turn, as in a program that processes blocks.  A view ``a[k:l]`` begins at a different address
in each call, and there are more addresses than pycoll caches.  With ``--registered``, pycoll uses registered buffers,
and MPI uses ordinary ones.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import inspect
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

import pycoll
from pycoll.api.derived import with_body
from pycoll.base.command_line import Parser, printed_once, say_written
from pycoll.base.files import write_json
from pycoll.selection.choices import primitive_called
from pycoll.selection.rules import choose
from pycoll.tune.environment import environment
from pycoll.tune.options import nbytes
from pycoll.tune.timing import ratio

from .machine import alone, disturbed
from .results import document, table
from .usage import typed

WINDOWS, ADDRESSES, STEP = 32, 4096, 16  # numbers of views, and the elements between the starts of two views
BLOCK = 2e-3  # seconds of consecutive calls between two barriers
CALLS = (
    "Allreduce(x, y)",
    "Allreduce(a[i:j], b[i:j])",
    "Allreduce(a[k:l], b[k:l])",
    "Allreduce([x, FLOAT], [y, FLOAT])",
    "Allreduce(IN_PLACE, [y, FLOAT])",
    "Allreduce(IN_PLACE, y)",
    "Bcast(a[i:j])",
    "Bcast(a[k:l])",
    "Scatter(s, y)",
    "Gather(x, r)",
    "Allgather(x, r)",
    "Allgatherv(x, [r, counts])",
    "Alltoall(s, r)",
    "Reduce(x, y)",
    "Reduce_scatter_block(IN_PLACE, y)",
    "Iallreduce(x, y).Wait()",
    "Barrier()",
)
WAYS = ("mpi", "named", "comm", "empty")
Loop = Callable[[int], None]


class Program:
    """Buffers for vectors of one size, and loops that repeat a call."""

    def __init__(self, ranks: int, size: int, allocate: Callable[[int], np.ndarray]) -> None:
        self.count = max(ranks, size // 4 // ranks * ranks)  # float32 elements
        room = self.count + ADDRESSES * STEP
        lengths = {"x": self.count, "y": self.count, "a": room, "b": room}
        lengths |= dict.fromkeys("rs", self.count * ranks)
        self.arrays = {name: allocate(length) for name, length in lengths.items()}
        for name, array in self.arrays.items():
            array[...] = name in "xas"
        self._names = self.arrays | {
            "counts": [self.count] * ranks,
            "FLOAT": MPI.FLOAT,
            "IN_PLACE": MPI.IN_PLACE,
            "windows": self._windows,
        }
        again, anew = cycle(range(WINDOWS)), cycle(range(ADDRESSES))
        self._starts = ((STEP * window, STEP * place) for window, place in zip(again, anew))

    def _windows(self, times: int) -> list[tuple[int, int, int, int]]:
        """Return two slices of `a` and `b` for each call: one of the windows, and one not used for many calls."""
        return [(i, i + self.count, k, k + self.count) for i, k in islice(self._starts, times)]

    def loop(self, comm: MPI.Intracomm, call: str, algorithm: str | None) -> Loop:
        """Return a function that makes the call a given number of times."""
        if algorithm:
            name, rest = call.split("(", 1)
            arguments, rest = rest.split(")", 1)
            call = f"{name}({arguments + ', ' if arguments else ''}algorithm={algorithm!r}){rest}"
        names = self._names | {"comm": comm}
        exec(f"def loop(times):\n    for i, j, k, l in windows(times):\n        comm.{call}", names)
        found: Loop = names["loop"]
        return found


def empty(method: str) -> type[MPI.Intracomm]:
    """Return a class of communicators whose method only calls the one of mpi4py."""
    native = getattr(MPI.Intracomm, method)
    signature = inspect.signature(native)
    body = [f"return native({', '.join(signature.parameters)})"]
    return type("Empty", (MPI.Intracomm,), {method: with_body(native, method, signature, body, native=native)})


COLUMNS = {
    "call": ("call", ""),
    "bytes": ("bytes", ""),
    "mpi": ("mpi (us)", ".2f"),
    "named": ("named (us)", ".2f"),
    "comm": ("Comm (us)", ".2f"),
    "empty": ("empty (us)", ".2f"),
    "mpi_named": ("mpi / named", ".2f"),
    "mpi_comm": ("mpi / Comm", ".2f"),
    "mpi_empty": ("mpi / empty", ".2f"),
}


def measure(
    comm: MPI.Intracomm, ours: pycoll.Comm, call: str, size: int, seconds: float, registered: bool
) -> dict[str, Any]:
    """Return the record of one call: its median and least time in microseconds in each way, and the ratios."""
    method = call.split("(")[0]
    primitive = primitive_called(method[1:].capitalize() if method.startswith("I") else method)
    chosen_by = size // comm.size if primitive == "reduce_scatter" else size
    theirs = program = Program(comm.size, size, partial(np.empty, dtype=np.float32))
    if registered:
        program = Program(comm.size, size, partial(pycoll.empty, dtype=np.float32, comm=ours))
    loops = {
        "mpi": theirs.loop(comm, call, None),
        "named": program.loop(ours, call, choose(primitive, chosen_by, comm.size)),
        "comm": program.loop(ours, call, None),
        "empty": theirs.loop(empty(method)(comm), call, None),
    }
    times = {name: _in_a_row(comm, loop) for name, loop in loops.items()}
    spent: dict[str, list[float]] = {name: [] for name in loops}
    orders = np.random.default_rng(0)
    for _ in range(max(5, round(seconds / BLOCK / len(loops)))):
        for name in orders.permutation(list(loops)):
            theirs.arrays["y"][...] = program.arrays["y"][...] = 0  # sums in place would grow without bound
            comm.Barrier()
            start = time.perf_counter()
            loops[name](times[name])
            spent[name].append((time.perf_counter() - start) / times[name])
    slowest = {name: np.array(comm.allgather(found)).max(axis=0) for name, found in spent.items()}
    medians = {name: float(np.median(found)) * 1e6 for name, found in slowest.items()}
    ratios = {f"mpi_{name}": ratio(slowest["mpi"], slowest[name]) for name in loops if name != "mpi"}
    minima = {f"{name}_min": float(found.min()) * 1e6 for name, found in slowest.items()}
    nbytes = 0 if primitive == "barrier" else program.count * 4
    if registered:
        for array in program.arrays.values():
            pycoll.free(array, comm=ours)
    return {"call": call, "bytes": nbytes, **medians, **ratios, **minima}


def _in_a_row(comm: MPI.Intracomm, loop: Loop) -> int:
    """Return the number of calls that take about `BLOCK` seconds; the same on all ranks."""
    loop(5)
    start = time.perf_counter()
    loop(5)
    took = (time.perf_counter() - start) / 5
    return int(comm.allreduce(max(1, round(BLOCK / took)), MPI.MIN))


def main(argv: list[str]) -> int:
    """Measure all calls, and print the times and ratios."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog=typed("python -m bench.calls"), description=typed(__doc__))
    parser.add_argument("--sizes", default="64,4K,64K,1M", help="sizes in bytes, separated by commas (%(default)s)")
    parser.add_argument("--calls", default="", metavar="TEXT", help="only calls that contain TEXT (default: all calls)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call and size (%(default)s)")
    parser.add_argument("--registered", action="store_true", help="registered buffers for pycoll")
    parser.add_argument("--json", metavar="FILE", help="also write the records to FILE")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            options.sizes = [nbytes(text) for text in options.sizes.split(",")]
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"--sizes: {error}")
        calls = [call for call in CALLS if options.calls in call]
        if not calls:
            parser.error(f"--calls {options.calls!r} matches none of: {', '.join(CALLS)}")
    ours = pycoll.Comm(comm)
    records = []
    for call in calls:
        for size in options.sizes if call != "Barrier()" else [0]:
            records.append(measure(comm, ours, call, size, options.seconds, options.registered))
    where = environment(comm)
    if comm.rank == 0:
        print(table(records, COLUMNS))
        times = [{"median": each[name], "min": each[f"{name}_min"]} for each in records for name in WAYS]
        for warning in filter(None, [alone(comm.size), disturbed(times)]):
            print(f"\n{warning}")
        if options.json:
            write_json(options.json, document(where, records))
            say_written(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
