"""Processes that multiprocessing starts, for example workers of a DataLoader; they are not ranks of MPI."""

from __future__ import annotations

from multiprocessing import process

import mpi4py


def is_child() -> bool:
    """Whether multiprocessing started this process, or its fork server."""
    # the main file is imported again, with this attribute, before `parent_process` is known
    return process.parent_process() is not None or hasattr(process.current_process(), "_inheriting")


def leave_mpi_alone() -> None:
    """Let a child import modules that import mpi4py without initializing MPI, which would wait for a job of its own."""
    if is_child():
        mpi4py.rc.initialize = False


def check_rank() -> None:
    """Raise RuntimeError in a child."""
    if is_child():
        raise RuntimeError(
            "this process was started by multiprocessing, and is not a rank of MPI; start each rank with "
            "`mpiexec -n RANKS python PROGRAM` or srun, not with torch.multiprocessing"
        )
