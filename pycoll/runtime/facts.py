"""The facts that the ranks of a communicator know about each other."""

from __future__ import annotations

import os
import zlib
from functools import cache, lru_cache

import numpy as np
from mpi4py import MPI

from ..arguments.device_arrays import gpu_possible
from ..base import settings
from ..base.domains import KINDS, UNKNOWN, VARIABLE, domains
from ..base.errors import MismatchError
from ..base.launcher import runs_alone
from ..base.numbers import ranks_have, ranks_named
from ..base.user_warnings import warn
from ..base.version import __version__
from ..schedule.registry import own_algorithms, own_digest
from ..selection.choices import unknown_variables
from ..selection.select import CommFacts
from . import native
from .host_memory import Process, this_process
from .open_core import why_unusable
from .tuned import usable_tuning_file

ROW = 32  # numbers that a rank tells, in all versions of pycoll, so that ranks of different ones refuse each other
FACTS = (
    *("version", "host", "tuning file", "GPU", "native", "CUDA-aware", "cores", "own algorithms", "core"),
    *("reference", "no place", *KINDS),
)
SAME = ("version", "reference", "own algorithms")  # facts that must be the same on all ranks


def exchange_facts(comm: MPI.Intracomm) -> tuple[MPI.Request, np.ndarray]:
    """Begin to tell all ranks what this one knows; return the request, and the table of all ranks that it fills."""
    row, table = np.zeros(ROW, np.int64), np.empty((comm.size, ROW), np.int64)
    mine = _own_facts()
    row[: len(FACTS)] = [mine[fact] for fact in FACTS]
    row[-len(Process._fields) :] = this_process()
    return comm.Iallgather(row, table), table


def facts_in(table: np.ndarray, private: MPI.Intracomm) -> tuple[CommFacts, list[Process]]:
    """The facts and the processes in the table of `exchange_facts`.

    Raises MismatchError if the ranks differ in what must be the same, and ValueError if a place is wrong.
    """
    known = table[:, : len(FACTS)]
    facts = _common_facts(known.tobytes())
    if facts is None:
        error = _difference(private, dict(zip(FACTS, known.T)))
        private.Free()
        raise error
    return facts, [Process(*each) for each in table[:, -len(Process._fields) :].tolist()]


def _own_facts() -> dict[str, int]:
    """Those of this rank."""
    file, _ = usable_tuning_file()
    on_gpu = gpu_possible()
    own, problem = _domains()
    return {
        "version": zlib.crc32(" ".join([__version__, *FACTS]).encode()),
        "host": _host(),
        "tuning file": file.digest if file else 0,
        "GPU": on_gpu,
        "native": settings.NATIVE and MPI.Query_thread() == MPI.THREAD_MULTIPLE,
        "CUDA-aware": on_gpu and _cuda_aware(),
        "cores": _cores(),
        "own algorithms": own_digest(),
        "core": not why_unusable(),
        "reference": settings.EXECUTOR == "reference",
        "no place": bool(problem),
        **dict(zip(KINDS, own)),
    }


def _host() -> int:
    """A number of 63 bits for the name of this host.

    Hosts are compared by processor name, because Split_type would block the progress of collectives in flight.
    """
    name = MPI.Get_processor_name().encode()
    return zlib.crc32(name) << 31 ^ zlib.crc32(name[::-1])


@lru_cache(maxsize=8)  # many communicators have the same ranks
def _common_facts(table: bytes) -> CommFacts | None:
    """What the ranks know, from the facts of all ranks; None if they cannot communicate."""
    of = dict(zip(FACTS, np.frombuffer(table, np.int64).reshape(-1, len(FACTS)).T))
    if of["no place"].any() or any(_ranks_with_other(of, fact) for fact in SAME):
        return None
    numbers: dict[int, int] = {}
    return CommFacts(
        tuple(numbers.setdefault(name, len(numbers)) for name in of["host"].tolist()),
        one_tuning_file=bool((of["tuning file"] == of["tuning file"][0]).all()),
        host_memory=not of["GPU"].any(),
        library=native.library(),
        cuda_aware=bool(of["CUDA-aware"].all()),
        core=bool(of["core"].all()),
        native=bool(of["native"].all()),
        cores=int(of["cores"].min()),
        domains=tuple(zip(*(of[kind].tolist() for kind in KINDS))),
    )


def warn_of(facts: CommFacts) -> None:
    """Warn of what the user may not have intended; after all exchanges, since warnings may be errors."""
    _warn_of_environment()
    if not facts.one_tuning_file:
        warn_once("the ranks have different tuning files, so none is used")
    if facts.size == 1:
        _warn_if_alone()


@cache
def _warn_of_environment() -> None:
    warn_once(unknown_variables())
    warn_once(usable_tuning_file()[1])


@cache
def _warn_if_alone() -> None:
    warn_once(runs_alone(MPI.COMM_WORLD.size))


@cache
def _cores() -> int:
    return os.cpu_count() or 1


def _domains() -> tuple[tuple[int, ...], str]:
    """The domains of this process, and what is wrong with those that were given, which all ranks have to know."""
    try:
        return domains(), ""
    except ValueError as error:
        return (UNKNOWN,) * len(KINDS), str(error)


def _ranks_with_other(of: dict[str, np.ndarray], fact: str) -> list[int]:
    """The ranks that differ from rank 0 in a fact."""
    ranks: list[int] = np.flatnonzero(of[fact] != of[fact][0]).tolist()
    return ranks


def _difference(private: MPI.Intracomm, of: dict[str, np.ndarray]) -> Exception:
    """The error that says in what the ranks differ, or which of them have no place.

    The facts of other versions have other meanings, but the first one is always the version.
    """
    me = f"rank {private.rank} of {private.size}"
    if ranks := _ranks_with_other(of, "version"):
        return MismatchError(
            f"{ranks_have(ranks)} another version of pycoll than rank 0; "
            f"{me} has {__version__}: install the same version for all ranks"
        )
    if ranks := _ranks_with_other(of, "reference"):
        return MismatchError(
            f"{ranks_have(ranks)} another PYCOLL_EXECUTOR than rank 0, and one of them is 'reference'; "
            f"{me} has {settings.EXECUTOR!r}: set the same value for all ranks"
        )
    if ranks := _ranks_with_other(of, "own algorithms"):
        own = ", ".join(map(str, own_algorithms())) or "none"
        return MismatchError(
            f"{ranks_named(ranks)} of {private.size} registered algorithms outside of pycoll which differ from "
            f"those of rank 0; rank {private.rank} has {own}: import the same files on all ranks before the first call"
        )
    ranks = np.flatnonzero(of["no place"]).tolist()
    return ValueError(_domains()[1] or f"{VARIABLE} of {ranks_named(ranks)} is not of the form socket=0,numa=0,l3=0")


def _cuda_aware() -> bool:
    from .gpu import cuda_aware  # imported only with CuPy

    return bool(cuda_aware.support().aware)


@cache
def warn_once(text: str) -> None:
    """Issue a warning on rank 0, unless the text is empty."""
    if text and MPI.COMM_WORLD.rank == 0:
        warn(text)
