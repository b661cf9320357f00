"""New processes for ranks that have failed."""

from __future__ import annotations

import os
import sys

from mpi4py import MPI

import pycoll

from ...base.user_warnings import warn

_REPLACES = "REPLACES_FAILED_RANK_OF_PYCOLL"  # in the environment of new processes


def replace(comm: pycoll.Comm, missing: int) -> pycoll.Comm:
    """Start `missing` processes that run the same program; return the communicator with them.

    If that is not possible, issue a warning and return `comm`.  All ranks call this together.
    """
    info = MPI.Info.Create({"PMIX_ENVAR": f"{_REPLACES}=1"})
    try:
        between = MPI.Intracomm(comm).Spawn(sys.executable, sys.orig_argv[1:], missing, info)
    except MPI.Exception as error:
        if error.Get_error_class() != MPI.ERR_SPAWN:
            raise
        warn(f"failed ranks are not replaced: {error}")
        return comm
    finally:
        info.Free()
    return pycoll.Comm(between.Merge(high=False))


def replaces() -> bool:
    """Whether this process replaces one that has failed."""
    return _REPLACES in os.environ and MPI.Comm.Get_parent() != MPI.COMM_NULL


def join() -> pycoll.Comm | None:
    """Return the communicator with the ranks that have started this process to replace others; None if it is not so."""
    return pycoll.Comm(MPI.Comm.Get_parent().Merge(high=True)) if replaces() else None
