"""A description of the machine and the software of a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

import mpi4py
import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime import native


def environment(comm: MPI.Intracomm) -> dict[str, object]:
    """Return facts about the machine and the software, complete on rank 0 only; all ranks call this together."""
    hosts = comm.gather(MPI.Get_processor_name())
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "ranks": comm.size,
        "hosts": list(dict.fromkeys(hosts or [])),
        "mpi": native.library(),
        "mpi4py": mpi4py.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pycoll": pycoll.__version__,
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpu": None,
    }


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def _commit() -> str | None:
    """Return the commit of the checkout that pycoll was loaded from, or None."""
    root = Path(pycoll.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
