"""Which ranks have died, as the MPI library knows it with user-level failure mitigation (ULFM)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from mpi4py import MPI

from ..base.errors import RankFailed
from ..base.numbers import ranks_have

# ``mpiexec --with-ft ulfm`` of Open MPI sets it
TOLERANT = os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112
# mpiexec of Open MPI 5 reports ranks that a signal has ended, but not those that have exited with another status than 0
UNDETECTED = (
    "; if a rank has exited with a status other than 0, Open MPI finds out only with the options "
    "--with-ft ulfm --mca mpi_ft_detector true of mpiexec"
    if TOLERANT and os.environ.get("OMPI_MCA_mpi_ft_detector", "0") in ("0", "false")  # noqa: SIM112
    else ""
)
PATIENCE = 0.5  # seconds until MPI knows the rank that another rank has found dead
_FAILURES = MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED
_UNCLEAR = MPI.ERR_INTERN  # Open MPI: the error class of a nonblocking collective in which a rank has failed


def rank_failed(comm: MPI.Comm, what: str, error: BaseException) -> RankFailed | None:
    """Return the error that names the failed ranks of a communicator, if `error` comes from their failure, or None.

    A communicator can also be revoked by the program: then no rank has failed.
    """
    if not isinstance(error, MPI.Exception) or isinstance(error, RankFailed):
        return None
    kind = error.Get_error_class()
    if not (kind in _FAILURES or TOLERANT):
        return None
    ranks = _known(comm, PATIENCE if kind in (*_FAILURES, _UNCLEAR) else 0.0)
    if not ranks:
        return None
    return RankFailed(f"{what}: {ranks_have(ranks)} failed; Shrink gives a communicator of the other ranks", ranks)


def is_failure(comm: MPI.Comm, error: BaseException | None) -> bool:
    """Whether an error, or the one it was raised from, has its cause in failed ranks or a revoked communicator."""
    while error is not None and not isinstance(error, MPI.Exception):
        error = error.__cause__
    if error is None or not TOLERANT:
        return False
    kind = error.Get_error_class()
    return kind in _FAILURES or comm.Is_revoked() or bool(_known(comm, PATIENCE if kind == _UNCLEAR else 0.0))


@contextlib.contextmanager
def failures_named(comm: MPI.Comm, what: str) -> Iterator[None]:
    """In a ``with`` block, raise RankFailed instead of the error of MPI if ranks have failed."""
    try:
        yield
    except MPI.Exception as error:
        if failure := rank_failed(comm, what, error):
            raise failure from error
        raise


def _known(comm: MPI.Comm, patience: float) -> list[int]:
    """The failed ranks; if none is known yet, wait for up to `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (ranks := _known_now(comm)) and time.monotonic() < deadline:
        MPI.COMM_SELF.Iprobe(0)  # lets MPI progress
        os.sched_yield()
    return ranks


def _known_now(comm: MPI.Comm) -> list[int]:
    try:
        failed, everyone = comm.Get_failed(), comm.Get_group()
    except (MPI.Exception, NotImplementedError):  # an MPI library with parts of ULFM
        return []
    try:
        return sorted(MPI.Group.Translate_ranks(failed, None, everyone)) if failed.size else []
    finally:
        failed.Free()
        everyone.Free()


def has_ended(process: int) -> bool:
    """Whether a process of this host has ended; it may still be waiting for its parent."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):  # another OSError may be that of a signal handler
        return True
