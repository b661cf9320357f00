"""Results on disk: JSON, written atomically."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

import mpi4py
import numpy as np
from mpi4py import MPI
from tabulate import tabulate

import pycoll
from pycoll.files import write_atomically


def environment(comm: MPI.Intracomm) -> dict[str, object]:
    """Where and with what a result was measured."""
    return {
        "ranks": comm.size,
        "mpi": re.sub(r"\s+", " ", re.split(r"[\n,]", MPI.Get_library_version())[0]),
        "mpi4py": mpi4py.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pycoll": pycoll.__version__,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def table(records: list[dict], columns: dict[str, tuple[str, str]]) -> str:
    """Records as a table; `columns` gives the heading and the number format of each key that is shown."""
    headings, formats = zip(*columns.values())
    return tabulate([[record[key] for key in columns] for record in records], headings, floatfmt=formats)


def write_json(path: str | Path, document: object) -> None:
    """Write a document so that the file is either the old one or the whole new one."""
    write_atomically(Path(path), lambda file: file.write(json.dumps(document, indent=1).encode()))
