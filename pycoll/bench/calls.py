"""Time calls as programs make them, against those of MPI: ``mpiexec -n 2 python -m pycoll.bench.calls``.

Each call is made with COMM_WORLD of mpi4py and with `pycoll.Comm`.  The two alternate; each makes the call many times
in a row, as in a loop of a program.  The times are those of the slowest rank; a ratio is the median over the pairs.
Arguments are made beforehand: four sets of arrays, which are used in turn.  A size is that of the vector of a rank, or
of the block of a rank.  The second table shows calls that name an algorithm and those between neighbors with corners,
the third one calls with Python objects, and the last one communicators, which are made and freed.  With
``--registered``, pycoll uses registered buffers, and MPI ordinary ones.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain, cycle, islice, product
from typing import Any

import numpy as np

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.selection.choices import primitive_called
from pycoll.tune.environment import environment
from pycoll.tune.options import nbytes, size_label
from pycoll.tune.timing import ratio

from .machine import alone, disturbed
from .results import document, table, write_results

SETS = 4  # sets of arrays
NEIGHBORS, AROUND = 4, 8  # of a rank in a periodic grid of two dimensions, without and with those at the corners
BLOCK = 2e-3  # seconds of consecutive calls between two barriers
# The arguments: x and y are vectors or blocks of the size of the column, s and r have such a block for each rank, and z
# is a block of the vector v; g and h have a block for each neighbor in a periodic grid of two dimensions, e and f also
# for those at the corners.  Names in brackets stand for buffers with counts, as in ``[r, counts, MPI.FLOAT]``; those in
# braces for a matrix with a datatype for each column, as in ``[r, types]``.
CALLS = {
    "Allreduce": "x y",
    "Reduce": "x y",
    "Scan": "x y",
    "Exscan": "x y",
    "Allreduce IN_PLACE": "IN_PLACE y",
    "Bcast": "x",
    "Scatter": "s y",
    "Gather": "x r",
    "Allgather": "x r",
    "Alltoall": "s r",
    "Reduce_scatter_block": "v z",
    "Reduce_scatter": "v z counts",
    "Gatherv": "x [r]",
    "Scatterv": "[s] y",
    "Allgatherv": "x [r]",
    "Alltoallv": "[s] [r]",
    "Alltoallw": "{s} {r}",
    "Barrier": "",
    "Iallreduce": "x y",
    "Ibcast": "x",
    "Ialltoall": "s r",
    "Allreduce_init": "x y",
    "Neighbor_allgather": "x h",
    "Neighbor_allgatherv": "x [h]",
    "Neighbor_alltoall": "g h",
    "Neighbor_alltoallv": "[g] [h]",
    "Neighbor_alltoallw": "{g} {h}",
    "Ineighbor_alltoall": "g h",
    "Neighbor_allgather_init": "x h",
    "Neighbor_alltoall_init": "g h",
}
NAMED = {
    f"{call} {algorithm}": CALLS[call]
    for call in ("Allreduce", "Reduce", "Bcast", "Allgather", "Alltoall", "Reduce_scatter_block")
    for algorithm in ("ring", "recursive_doubling", "tree", "rabenseifner", "bruck")
    if algorithm in pycoll.algorithms(primitive_called(call))
} | dict.fromkeys(
    (
        "Neighbor_alltoall direct",
        "Neighbor_alltoall combining",
        "Neighbor_alltoall_init direct",
        "Neighbor_alltoall_init two_level",
    ),
    "e f",
)
Arguments = tuple[Any, ...]
FLOAT = 9  # bytes in a pickle
OBJECT_TYPES: dict[str, Callable[[int], Any]] = {  # Python objects with about this number of bytes, if they have parts
    "NoneType": lambda size: None,
    "bool": lambda size: True,
    "int": lambda size: 3,
    "float": lambda size: 1.5,
    "int64": lambda size: np.int64(3),
    "float64": lambda size: np.float64(1.5),
    "str": lambda size: "x" * size,
    "list": lambda size: [1.5] * (size // FLOAT),
    "tuple": lambda size: (1, 2.0, *[1.5] * (size // FLOAT)),
    "dict": lambda size: {"name": "text", "shape": (3, 4), "scale": 0.5} | dict.fromkeys(range(size // FLOAT), 1.5),
    "array": lambda size: np.ones(max(1, size // 4), np.float32),
    "{array}": lambda size: {"array": np.ones(max(1, size // 4), np.float32)},
}
OBJECTS = [
    *(
        "allreduce float",
        "allreduce int",
        "bcast float",
        "bcast dict",
        "gather tuple",
        "allgather int",
        "allgather tuple",
    ),
    *("alltoall int", "scan float", "barrier", "bcast array", "allreduce array", "bcast {array}", "allgather {array}"),
]
MAKING: dict[str, Callable[[int], Arguments]] = {  # the arguments for a number of ranks
    "Dup": lambda ranks: (),
    "Split": lambda ranks: (0, 0),
    "Create_cart": lambda ranks: (MPI.Compute_dims(ranks, 2), [True, True]),
}
Loop = Callable[[int], None]


class CallBuffers:
    """Sets of arguments with float32 arrays for one size; with `typed`, as ``[array, count, MPI.FLOAT]``."""

    def __init__(
        self, ranks: int, size: int, call: str, allocate: Callable[[int], np.ndarray], typed: bool = False
    ) -> None:
        self.ranks, self.typed, self.allocate = ranks, typed, allocate
        self.method = call.split()[0]
        self.count = max(1, size // 4)
        self.part = -(-self.count // ranks)
        self.arrays: list[np.ndarray] = []
        self.sets = [tuple(map(self._argument, (CALLS | NAMED)[call].split())) for _ in range(SETS)]

    def _argument(self, name: str) -> Any:
        if name == "IN_PLACE":
            return MPI.IN_PLACE
        if name == "counts":
            return [self.part] * self.ranks
        letter = name.strip("[]{}")
        length = {"v": self.part * self.ranks, "z": self.part}.get(name, self.count)
        blocks = self.ranks if name == "v" and self.method == "Reduce_scatter_block" else 1
        if letter in "srghef":
            blocks = {"s": self.ranks, "r": self.ranks, "g": NEIGHBORS, "h": NEIGHBORS}.get(letter, AROUND)
            length = self.count * blocks
        array = self.allocate(length)
        array[...] = letter in "xvsge"  # y is 0, so that sums in place do not grow
        self.arrays.append(array)
        if name.startswith("{"):
            return [array, columns(self.count, blocks)]
        if name.startswith("["):
            return [array, [self.count] * blocks, MPI.FLOAT]
        return [array, length // blocks, MPI.FLOAT] if self.typed else array


@cache
def columns(rows: int, ranks: int) -> list[MPI.Datatype]:
    """Return the datatype of each column of a matrix of float32."""
    shape = rows, ranks
    return [MPI.FLOAT.Create_subarray(shape, (rows, 1), (0, column)).Commit() for column in range(ranks)]


def objects(ranks: int, size: int, call: str) -> Arguments:
    """Return the arguments of a call with Python objects."""
    method, *types = call.split()
    made = [OBJECT_TYPES[each](size) for each in types]
    return (made * ranks,) if method in ("alltoall", "scatter") else tuple(made)


def is_sized(call: str) -> bool:
    """Return whether a call takes buffers or arrays."""
    return call != "Barrier" and call not in MAKING and (call not in OBJECTS or "array" in call)


def repeated(comm: MPI.Intracomm, call: str, sets: list[Arguments], requests: list[Any]) -> Loop:
    """Return a function that makes a call a given number of times; persistent requests are appended to `requests`."""
    method = getattr(comm, call.split()[0])
    if call in NAMED and isinstance(comm, pycoll.Comm):
        method = partial(method, algorithm=call.split()[1])
    turns = cycle(sets)

    def blocking(times: int) -> None:
        for arguments in islice(turns, times):
            method(*arguments)

    def nonblocking(times: int) -> None:
        for arguments in islice(turns, times):
            method(*arguments).Wait()

    def making(times: int) -> None:
        for arguments in islice(turns, times):
            method(*arguments).Free()

    def persistent(times: int) -> None:
        for request in islice(begun, times):
            request.Start()
            request.Wait()

    if call in MAKING:
        return making
    if call.split()[0].endswith("_init"):
        made = [method(*arguments) for arguments in sets]
        requests += made
        begun = cycle(made)
        return persistent
    return nonblocking if call.startswith("I") else blocking


def measure(
    comm: MPI.Intracomm, ours: pycoll.Comm, call: str, size: int, seconds: float, registered: bool, typed: bool = False
) -> dict[str, Any]:
    """Return the record of one call: its median and least time in microseconds with each library, and the ratio."""
    buffers = None
    if call[0].islower():
        sets = ours_sets = [objects(comm.size, size, call) for _ in range(SETS)]
    elif call in MAKING:
        sets = ours_sets = [MAKING[call](comm.size)] * SETS
    else:
        sets = ours_sets = CallBuffers(comm.size, size, call, partial(np.empty, dtype=np.float32), typed).sets
        if registered:
            buffers = CallBuffers(comm.size, size, call, partial(pycoll.empty, dtype=np.float32, comm=ours), typed)
            ours_sets = buffers.sets
    grids = list(topologies(comm, ours, call))
    requests: list[Any] = []
    its, own = grids[:2] or (comm, ours)
    loops = {"mpi": repeated(its, call, sets, requests), "comm": repeated(own, call, ours_sets, requests)}
    took = {name: _seconds(comm, loop) for name, loop in loops.items()}
    times = {name: max(1, round(BLOCK / took[name])) for name in loops}
    spent: dict[str, list[float]] = {name: [] for name in loops}
    orders = np.random.default_rng(0)
    for _ in range(max(5, round(seconds / sum(times[name] * took[name] for name in loops)))):
        for name in orders.permutation(list(loops)):
            comm.Barrier()
            start = time.perf_counter()
            loops[name](times[name])
            spent[name].append((time.perf_counter() - start) / times[name])
    slowest = {name: np.array(comm.allgather(found)).max(axis=0) for name, found in spent.items()}
    medians = {name: float(np.median(found)) * 1e6 for name, found in slowest.items()}
    minima = {f"{name}_min": float(found.min()) * 1e6 for name, found in slowest.items()}
    for request in requests:
        request.Free()
    for grid in grids:
        grid.Free()
    for array in buffers.arrays if buffers else []:
        pycoll.free(array, comm=ours)
    return {"call": call, "bytes": size, **medians, "mpi_comm": ratio(slowest["mpi"], slowest["comm"]), **minima}


def topologies(comm: MPI.Intracomm, ours: pycoll.Comm, call: str) -> Iterator[MPI.Intracomm]:
    """Yield the communicators of a call between neighbors: of MPI, and of pycoll."""
    if "eighbor" not in call:
        return
    sides = MPI.Compute_dims(comm.size, 2)
    grid = ours.Create_cart(sides, [True, True])
    if call not in NAMED:
        pycoll.attach(grid)  # or MPI would run nonblocking calls
        yield from (comm.Create_cart(sides, [True, True]), grid)
        return
    around = grid.Create_neighborhood([offset for offset in product((-1, 0, 1), repeat=2) if any(offset)])
    grid.Free()
    yield comm.Create_dist_graph_adjacent(*around.inoutedges[:2])
    yield around


def _seconds(comm: MPI.Intracomm, loop: Loop) -> float:
    """Return the seconds of one call, the same on all ranks."""
    loop(SETS + 1)
    start = time.perf_counter()
    loop(SETS)
    return float(comm.allreduce((time.perf_counter() - start) / SETS, MPI.MAX))


def ratios(records: list[dict[str, Any]], sizes: list[int]) -> str:
    """Return a table of the ratios, with a row for each call and a column for each size."""
    shown = {"call": ("call", "")} | {str(size): (size_label(size), ".2f") for size in sizes}
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        row = rows.setdefault(record["call"], {"call": record["call"]})
        row[str(record["bytes"] or sizes[0])] = record["mpi_comm"]
    return table(list(rows.values()), shown)


def present(comm: MPI.Intracomm, tables: list[str], records: list[dict[str, Any]], path: str | None) -> None:
    """Print tables and warnings; write all records to `path` if it is given."""
    where = environment(comm)
    if comm.rank == 0:
        print(*tables, sep="\n\n", end="\n\n")
        timed = [each for each in records if "mpi_min" in each]
        times = [{"median": each[name], "min": each[f"{name}_min"]} for each in timed for name in ("mpi", "comm")]
        for warning in filter(None, [alone(comm.size), disturbed(times)]):
            print(warning)
        write_results(path, document(where, records))


def main(argv: list[str]) -> int:
    """Measure all calls, and print the ratios."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    parser = Parser(prog="python -m pycoll.bench.calls", description=__doc__)
    parser.add_argument("--sizes", default="8,4K,64K,1M,16M", help="in bytes, separated by commas (%(default)s)")
    parser.add_argument("--calls", default="", metavar="TEXT", help="only calls that contain TEXT (default: all calls)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call and size (%(default)s)")
    parser.add_argument("--typed", action="store_true", help="write arguments as [buf, count, type]")
    parser.add_argument("--registered", action="store_true", help="registered buffers for pycoll")
    parser.add_argument("--json", metavar="FILE", help="also write the records to FILE")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            sizes = [nbytes(text) for text in options.sizes.split(",")]
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"--sizes: {error}")
        everything = [CALLS, NAMED, *([] if options.registered else [OBJECTS, MAKING])]
        tables = [[call for call in calls if options.calls in call] for calls in everything]
        if not any(tables):
            parser.error(f"--calls {options.calls!r} matches none of: {', '.join(chain(*everything))}")
    ours = pycoll.Comm(comm)
    records = [
        measure(comm, ours, call, size, options.seconds, options.registered, options.typed)
        for calls in tables
        for call in calls
        for size in (sizes if is_sized(call) else [0])
    ]
    shown = [[record for record in records if record["call"] in calls] for calls in filter(None, tables)]
    present(comm, [ratios(each, sizes) for each in shown], records, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
