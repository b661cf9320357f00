"""Measure the bandwidth of GPU memory, and compare results: ``python -m pycoll.bench.gpu_copies RESULTS.json ...``.

Without files, it prints only the bandwidth.  The times of all-reduce in the files are compared with the time that the
GPU takes to copy the vector once within its memory.
"""

from __future__ import annotations

from pycoll.base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import json
import sys
from pathlib import Path

import numpy as np

from pycoll.arguments.device_arrays import cupy
from pycoll.base.command_line import Parser, in_words, say_written
from pycoll.base.files import write_json

from .device import gpu_environment, on_gpu
from .results import table

YARDSTICKS = ("mpi", "staged")

COLUMNS = {
    "file": ("file", ""),
    "path": ("path", ""),
    "algorithm": ("algorithm", ""),
    "bytes": ("bytes", ""),
    "median": ("time (us)", ".1f"),
    "native": ("native (us)", ".1f"),
    "staged": ("staged (us)", ".1f"),
    "to native": ("native / time", ".2f"),
    "to staged": ("staged / time", ".2f"),
    "to copy": ("time / copy", ".2f"),
    "copied": ("copied bytes", ""),
    "wrong": ("#wrong", ""),
}


def copy_bandwidth(nbytes: int, repeats: int = 20) -> float:
    """Return the median bandwidth of a copy within GPU memory, in bytes per second."""
    xp = cupy()
    runtime, stream = xp.cuda.runtime, xp.cuda.get_current_stream()
    source, to = xp.zeros(nbytes, np.uint8), xp.zeros(nbytes, np.uint8)
    times = []
    for _ in range(repeats + 3):
        begin, end = xp.cuda.Event(), xp.cuda.Event()
        begin.record(stream)
        runtime.memcpyAsync(to.data.ptr, source.data.ptr, nbytes, runtime.memcpyDefault, stream.ptr)
        end.record(stream)
        end.synchronize()
        times.append(xp.cuda.get_elapsed_time(begin, end) / 1e3)
    return nbytes / float(np.median(times[3:]))


def compared(path: Path, document: dict, bandwidth: dict[int, float]) -> list[dict]:
    """Return the all-reduce records of a file, compared with a copy of the same number of bytes."""
    rows = []
    for record in document["records"]:
        if record["primitive"] != "allreduce" or record["algorithm"] in YARDSTICKS:
            continue
        row = {**record, "file": path.name, "path": document["environment"]["path"]}
        for name in ("native", "staged"):
            row[f"to {name}"] = record[name] and record[name] / record["median"]
        nbytes = record["bytes"]
        if nbytes not in bandwidth:
            bandwidth[nbytes] = copy_bandwidth(nbytes)
        row["to copy"] = record["median"] / (nbytes / bandwidth[nbytes] * 1e6)
        rows.append(row)
    return rows


def main(argv: list[str]) -> None:
    """Measure the copy bandwidth, and compare the results with it."""
    parser = Parser(prog="python -m pycoll.bench.gpu_copies", description=__doc__)
    parser.add_argument(
        "results", nargs="*", type=Path, help="files of `python -m pycoll.bench allreduce --device cuda --json`"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the bandwidths and the comparison to FILE")
    options = parser.parse_args(argv)
    try:
        documents = {path: json.loads(path.read_text()) for path in options.results}
    except OSError as error:
        parser.error(in_words(error))
    except ValueError as error:
        parser.error(f"a result file is not JSON: {error}")
    on_gpu(MPI.COMM_SELF)
    bandwidth: dict[int, float] = {nbytes: copy_bandwidth(nbytes) for nbytes in (64 << 20, 256 << 20)}
    rows = [row for path, document in documents.items() for row in compared(path, document, bandwidth)]
    where = gpu_environment()
    if options.json:
        measured = {str(nbytes): value for nbytes, value in sorted(bandwidth.items())}
        write_json(options.json, {"environment": where, "copy bandwidth": measured, "allreduce": rows})
    for key, value in where.items():
        print(f"{key}: {value}")
    for nbytes, value in sorted(bandwidth.items()):
        print(f"the GPU copies {nbytes} bytes at {value / 1e9:.1f} GB/s")
    if rows:
        print(table(rows, COLUMNS))
    say_written(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
