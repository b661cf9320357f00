"""Results on disk: JSON, written atomically."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path

import mpi4py
import numpy as np
from mpi4py import MPI

import pycoll


def environment(comm: MPI.Intracomm) -> dict[str, object]:
    """Where and with what a result was measured."""
    return {
        "ranks": comm.size,
        "mpi": MPI.Get_library_version().partition("\n")[0].strip("\0").strip(),
        "mpi4py": mpi4py.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pycoll": pycoll.__version__,
        "cores": os.cpu_count(),
    }


def write_json(path: str | Path, document: object) -> None:
    """Write a document so that the file is either the old one or the whole new one."""
    path = Path(path)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, suffix=".tmp", delete=False) as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
