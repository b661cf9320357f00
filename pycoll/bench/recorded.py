"""Record which collectives an unchanged program makes: ``mpiexec -n 4 python -m pycoll.bench.recorded [-m] program``.

The program runs as under ``python -m pycoll.run``.  Rank 0 counts its calls by the kind of the communicator, the
method, the type of the object or "buffer", and the bytes: those of the vector of a rank, or of the block of a rank; of
an object, those of its pickle.  They are rounded up to a power of two.  With ``--json FILE``, it adds the program to a
list, which `pycoll.bench.programs` times.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import functools
import inspect
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pycoll import run
from pycoll.api.comm import Comm
from pycoll.api.comm_neighbors import NeighborMethods
from pycoll.arguments.buffer_spec import NeedsNativeMPI
from pycoll.arguments.mpi_arguments import read
from pycoll.base.command_line import Parser, printed_once
from pycoll.runtime.attach import attach
from pycoll.runtime.calls import Call
from pycoll.runtime.dispatch import check
from pycoll.runtime.front import METHODS
from pycoll.selection.choices import primitive_called

from .results import table, write_results

WORLD = MPI.COMM_WORLD  # of mpi4py
OBJECTS = "barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"
BLOCKS = "scatter", "alltoall"  # of which the argument is a sequence with an object for each rank
MAKING = "Dup", "Clone", "Split", "Split_type", "Create_group", "Create_cart", "Create_graph", "Sub"
FORMS = {
    form: method for method in METHODS for form in (method, f"I{method.lower()}", f"{method}_init")
}  # of methods with buffers
TOPOLOGIES = {MPI.CART: "Cartesian", MPI.GRAPH: "graph", MPI.DIST_GRAPH: "graph"}
Kind = tuple[str, str, str, int]  # communicator, method, type, bytes


def kind_of(comm: MPI.Comm) -> str:
    """Return the kind of a communicator: "world", a "copy" of it, a "part", "alone", or that of its topology."""
    if comm.size == 1:
        return "alone"
    if (topology := comm.Get_topology()) in TOPOLOGIES:
        return TOPOLOGIES[topology]
    if comm.size < WORLD.size:
        return "part"
    return "world" if comm == WORLD else "copy"


def size_of(comm: Comm, method: str, given: dict[str, Any]) -> int:
    """Return the bytes of the buffers of a call; -1 if only MPI can read them."""
    primitive = primitive_called(FORMS[method])
    both = {"sendbuf": None, "recvbuf": given.get("buf", given.get("recvbuf"))} | given
    known = {key: both[key] for key in ("sendbuf", "recvbuf", "op", "root", "recvcounts") if key in both}
    topology = attach(comm).topology if "eighbor" in method else None
    try:
        buffers, _ = check(Call(primitive, comm, **known, read=read), topology)
    except NeedsNativeMPI:
        return -1
    return buffers.mean_size(comm.size)


def object_of(method: str, given: dict[str, Any]) -> tuple[str, int]:
    """Return the type of the object of a call, and the bytes of its pickle."""
    if method == "barrier":
        return "", 0
    sent = next(iter(given.values()))
    if method in BLOCKS and sent is not None:
        sent = sent[0]
    return type(sent).__name__, len(pickle.dumps(sent, pickle.HIGHEST_PROTOCOL))


def rounded_up(size: int) -> int:
    """Return the least power of two that is not less, or 0."""
    return 1 << (size - 1).bit_length() if size > 0 else size


def recording(method: Callable[..., Any], name: str, counts: Counter[Kind]) -> Callable[..., Any]:
    """Return a method that counts its calls, except those inside of other ones."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(comm: Comm, *args: Any, **kwargs: Any) -> Any:
        if not inside:
            bound = signature.bind(comm, *args, **kwargs)
            bound.apply_defaults()
            given = dict(list(bound.arguments.items())[1:])
            if name in OBJECTS:
                kind, size = object_of(name, given)
            else:
                kind, size = "buffer", 0 if name in MAKING else size_of(comm, name, given)
            counts[kind_of(comm), name, kind, rounded_up(size)] += 1
        inside.append(name)
        try:
            return method(comm, *args, **kwargs)
        finally:
            inside.pop()

    return call


inside: list[str] = []  # the names of the methods that run


def methods() -> Iterator[tuple[type, str]]:
    """Yield each method to count, with its class."""
    for kind in (Comm, NeighborMethods, *Comm.__subclasses__()):
        for name in (*OBJECTS, *MAKING, *FORMS):
            if name in vars(kind) or (kind is Comm and hasattr(kind, name)):
                yield kind, name


def known_programs(path: Path | None) -> dict[str, Any]:
    """The list in a file; raise ValueError if it has none."""
    try:
        programs = json.loads(path.read_text()) if path and path.exists() else {}
    except ValueError:
        programs = None
    if not isinstance(programs, dict):
        raise ValueError(f"--json {path} is no list of programs")
    return programs


def report(counts: Counter[Kind], package: str | None, path: Path | None) -> None:
    """Print the counts, the most frequent calls first, and add them to the list in a file."""
    keys = "comm", "method", "type", "bytes", "times"
    calls = [dict(zip(keys, (*kind, times))) for kind, times in counts.most_common()]
    print(table(calls, {key: (key, "") for key in keys}))
    if path:
        name = package or Path(sys.argv[0]).stem
        programs = known_programs(path)
        programs[name] = {"version": version(package) if package else "", "ranks": WORLD.size, "calls": calls}
        write_results(path, dict(sorted(programs.items())))


def main(argv: list[str]) -> None:
    """Run the program, and report its calls when it ends without an error."""
    parser = Parser(prog="python -m pycoll.bench.recorded", description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path, help="the list to which the program is added")
    parser.add_argument("--package", help="the package whose calls these are (default: the name of the file)")
    parser.add_argument("-m", action="store_true", dest="module", help="run a module, like `python -m`")
    parser.add_argument("program", help="the file of the program, or with -m the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    with printed_once(WORLD):
        options = parser.parse_args(argv)
        with parser.refusing(OSError, ValueError):  # before the program runs
            known_programs(options.json)
    counts: Counter[Kind] = Counter()
    for kind, name in list(methods()) if WORLD.rank == 0 else ():
        setattr(kind, name, recording(getattr(kind, name), name, counts))
    try:
        run.main([*["-m"] * options.module, options.program, *options.arguments])
    except SystemExit as end:
        if end.code:
            raise
    if WORLD.rank == 0:
        report(counts, options.package, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
