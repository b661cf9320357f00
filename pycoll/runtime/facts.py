"""The facts that the ranks of a communicator know about each other."""

from __future__ import annotations

import os
import zlib
from functools import cache, partial

import numpy as np
from mpi4py import MPI

from ..arguments.device_arrays import gpu_possible
from ..base import settings
from ..base.domains import KINDS, UNKNOWN, VARIABLE, domains
from ..base.errors import MismatchError
from ..base.numbers import ranks_have, ranks_named
from ..base.user_warnings import warn
from ..base.version import __version__
from ..schedule.registry import own_algorithms, own_digest
from ..selection.choices import unknown_variables
from ..selection.select import CommFacts
from . import native
from .missing import missing
from .open_core import why_unusable
from .progress import until
from .tuned import usable_tuning_file

ROW = 32  # numbers that a rank tells, in all versions of pycoll, so that ranks of different ones refuse each other


def facts_of(private: MPI.Intracomm) -> CommFacts:
    """The host of each rank, and other facts that the ranks must know about each other.

    Hosts are compared by processor name, because Split_type would block the progress of collectives in flight.
    """
    name = MPI.Get_processor_name().encode()
    file, unusable = usable_tuning_file()
    on_gpu = gpu_possible()
    own, problem = _domains()
    known = {
        "host": zlib.crc32(name) << 31 ^ zlib.crc32(name[::-1]),  # 63 bits
        "tuning file": file.digest if file else 0,
        "GPU": on_gpu,
        "native": settings.NATIVE and MPI.Query_thread() == MPI.THREAD_MULTIPLE,
        "CUDA-aware": on_gpu and _cuda_aware(),
        "cores": os.cpu_count() or 1,
        "own algorithms": own_digest(),
        "core": not why_unusable(),
        "reference": settings.EXECUTOR == "reference",
        "no place": bool(problem),
        **dict(zip(KINDS, own)),
    }
    mine = {"version": zlib.crc32(" ".join([__version__, *known]).encode())} | known
    row, table = np.zeros(ROW, np.int64), np.empty((private.size, ROW), np.int64)
    row[: len(mine)] = [*mine.values()]
    exchange = private.Iallgather(row, table)
    until(exchange.Test, "the first call of pycoll on this communicator", partial(missing, private, "taken part"))
    of = dict(zip(mine, table.T))
    if different := _difference(private, of):
        private.Free()
        raise MismatchError(different)
    if ranks := np.flatnonzero(of["no place"]).tolist():
        private.Free()
        raise ValueError(problem or f"{VARIABLE} of {ranks_named(ranks)} is not of the form socket=0,numa=0,l3=0")
    numbers: dict[int, int] = {}
    hosts = tuple(numbers.setdefault(name, len(numbers)) for name in of["host"].tolist())
    facts = CommFacts(
        hosts,
        one_tuning_file=bool((of["tuning file"] == of["tuning file"][0]).all()),
        host_memory=not of["GPU"].any(),
        library=native.library(),
        cuda_aware=bool(of["CUDA-aware"].all()),
        core=bool(of["core"].all()),
        native=bool(of["native"].all()),
        cores=int(of["cores"].min()),
        domains=tuple(zip(*(of[kind].tolist() for kind in KINDS))),
    )
    warn_once(unknown_variables())
    warn_once(unusable)  # after the exchange, since the caller may turn warnings into errors
    if not facts.one_tuning_file:
        warn_once("the ranks have different tuning files, so none is used")
    return facts


def _domains() -> tuple[tuple[int, ...], str]:
    """The domains of this process, and what is wrong with those that were given, which all ranks have to know."""
    try:
        return domains(), ""
    except ValueError as error:
        return (UNKNOWN,) * len(KINDS), str(error)


def _difference(private: MPI.Intracomm, of: dict[str, np.ndarray]) -> str:
    """How ranks differ in what must be the same on all of them, in words; empty if they do not.

    The facts of other versions have other meanings, but the first one is always the version.
    """

    def differing(fact: str) -> list[int]:
        ranks: list[int] = np.flatnonzero(of[fact] != of[fact][0]).tolist()
        return ranks

    if ranks := differing("version"):
        return (
            f"{ranks_have(ranks)} another version of pycoll than rank 0; "
            f"rank {private.rank} of {private.size} has {__version__}: install the same version for all ranks"
        )
    if ranks := differing("reference"):
        return (
            f"{ranks_have(ranks)} another PYCOLL_EXECUTOR than rank 0, and one of them is 'reference'; "
            f"rank {private.rank} of {private.size} has {settings.EXECUTOR!r}: set the same value for all ranks"
        )
    if ranks := differing("own algorithms"):
        own = ", ".join(map(str, own_algorithms())) or "none"
        return (
            f"{ranks_named(ranks)} of {private.size} registered algorithms outside of pycoll which differ from "
            f"those of rank 0; rank {private.rank} has {own}: import the same files on all ranks before the first call"
        )
    return ""


def _cuda_aware() -> bool:
    from .gpu import cuda_aware  # imported only with CuPy

    return bool(cuda_aware.support().aware)


@cache
def warn_once(text: str) -> None:
    """Issue a warning on rank 0, unless the text is empty."""
    if text and MPI.COMM_WORLD.rank == 0:
        warn(text)
