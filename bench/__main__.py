"""Times pycoll's collectives beside MPI's own: ``mpiexec -n 4 python -m bench``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from tqdm import tqdm

import pycoll
from pycoll.cuda.support import facts

from .cases import FORMS, IN_PLACE, MEASURED, Case, busbw_factor
from .gpu import gpu_environment, on_gpu, path_environment
from .results import environment, table, write_json
from .timing import medians

COLUMNS = {  # of a record: heading, number format
    "primitive": ("primitive", ""),
    "algorithm": ("algorithm", ""),
    "place": ("place", ""),
    "form": ("form", ""),
    "bytes": ("bytes", ""),
    "count": ("count", ""),
    "dtype": ("dtype", ""),
    "time": ("time (us)", ".2f"),
    "algbw": ("algbw (GB/s)", ".3f"),
    "busbw": ("busbw (GB/s)", ".3f"),
    "native": ("native (us)", ".2f"),
    "speedup": ("speedup", ".2f"),
    "wrong": ("#wrong", ""),
}
ON_GPU = {"native": ("native (us)", ".2f"), "staged": ("staged (us)", ".2f")}  # the yardsticks for buffers on a GPU


def nbytes(text: str) -> int:
    """A number of bytes: ``8``, ``64K``, ``1M``, ``2G``."""
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8, 64K or 1M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; what is wrong with it ends the program."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("primitives", nargs="*", metavar="primitive", help=f"of: {', '.join(MEASURED)} (default: all)")
    parser.add_argument("--sizes", default="8,1K,32K,1M,8M", help="total bytes, with commas between (%(default)s)")
    parser.add_argument("--algorithm", help="algorithms, with commas between; 'auto' is pycoll's choice (default: all)")
    parser.add_argument("--dtype", default="float32", type=np.dtype, help="(%(default)s)")
    parser.add_argument("--place", choices=["out", "in", "both"], default="out", help="in place or out of place")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the buffers lie (%(default)s)")
    parser.add_argument("--form", choices=FORMS, default="blocking", help="of pycoll's call; MPI's own is blocking")
    parser.add_argument("--budget", type=float, default=60.0, help="about how many seconds of timing (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the records there")
    options = parser.parse_args(argv)
    for name in options.primitives:
        if name not in MEASURED:
            parser.error(f"primitive {name!r} is not one of: {', '.join(MEASURED)}")
    options.primitives = options.primitives or MEASURED
    known = dict.fromkeys(name for primitive in options.primitives for name in pycoll.algorithms(primitive))
    options.algorithm = options.algorithm.split(",") if options.algorithm else []
    for name in options.algorithm:
        if name not in known and name != "auto":
            parser.error(f"--algorithm {name!r} is not one of: {', '.join(known)}, auto")
    try:
        options.sizes = [nbytes(text) for text in options.sizes.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(f"--sizes: {error}")
    if options.dtype.kind not in "iufc":
        parser.error(f"--dtype {options.dtype} is not a number type")
    return options


def points(options: argparse.Namespace) -> Iterator[tuple[str, str, int, bool]]:
    """What is to be measured: primitive, algorithm, bytes, in place."""
    for primitive in options.primitives:
        names = pycoll.algorithms(primitive)
        if options.algorithm:
            names = [name for name in [*names, "auto"] if name in options.algorithm]
        for name in names:
            for size in options.sizes if primitive != "barrier" else [0]:
                if options.place in ("out", "both") or primitive == "barrier":
                    yield primitive, name, size, False
                if options.place in ("in", "both") and primitive in IN_PLACE:
                    yield primitive, name, size, True


def measure(
    comm: MPI.Intracomm, point: tuple[str, str, int, bool], dtype: np.dtype, form: str, budget: float, xp: Any = np
) -> dict:
    """One record; of yardsticks that there are none of, the time is None."""
    primitive, name, size, in_place = point
    case = Case(comm, primitive, size, dtype, in_place, xp)
    algorithm = None if name == "auto" else name
    calls = {"ours": case.call(algorithm, form)}
    if xp is np or facts().says:  # a library that sends by a CUDA-aware UCX need not be so in its collectives
        calls["native"] = case.call_native()
    if xp is not np and primitive != "barrier":
        calls["staged"] = case.call_staged()
    wrong = case.wrong(calls["ours"], calls.get("staged") or calls.get("native") or comm.Barrier)
    with pycoll.traffic() as sent:
        calls["ours"]()
    case.zero()
    times = dict(zip(calls, medians(comm, list(calls.values()), budget)))
    seconds, native, staged = (times.get(name) for name in ("ours", "native", "staged"))
    algbw = case.nbytes / seconds / 1e9
    return {
        "primitive": primitive,
        "algorithm": name,
        "place": "in" if in_place else "out",
        "form": form,
        "bytes": case.nbytes,
        "count": case.count,
        "dtype": dtype.name,
        "time": seconds * 1e6,
        "algbw": algbw,
        "busbw": algbw * busbw_factor(primitive, comm.size),
        "native": native and native * 1e6,
        "staged": staged and staged * 1e6,
        "copied": sent.staged,  # bytes between this rank's GPU and the host
        "speedup": (native or staged or seconds) / seconds,
        "wrong": wrong,
    }


def main(argv: list[str]) -> int:
    """Measure and print; 1 if a result was wrong."""
    comm = MPI.COMM_WORLD
    if comm.rank != 0:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (one usage message is enough)
    options = parse(argv)
    if comm.rank != 0:
        sys.stderr = sys.__stderr__
    pycoll.abort_on_exception()
    todo = list(points(options))
    pycoll.attach(comm)
    xp = on_gpu(comm) if options.device == "cuda" else np
    columns = COLUMNS if xp is np else {**COLUMNS, **ON_GPU}
    shown = tqdm(todo, unit="point", leave=False, disable=None if comm.rank == 0 else True)
    budget = options.budget / len(todo)
    records = [measure(comm, point, options.dtype, options.form, budget, xp) for point in shown]
    if comm.rank == 0:
        where = environment(comm) | (gpu_environment() | path_environment() if options.device == "cuda" else {})
        if options.json:  # before printing, which may fail
            write_json(options.json, {"environment": where, "records": records})
        print("  ".join(f"{key}: {value}" for key, value in where.items()))
        print(table(records, columns))
    return int(any(record["wrong"] for record in records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
