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
from ..base.numbers import ranks_named
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


def facts_of(private: MPI.Intracomm) -> CommFacts:
    """The host of each rank, and other facts that the ranks must know about each other.

    Hosts are compared by processor name, because Split_type would block the progress of collectives in flight.
    """
    name = MPI.Get_processor_name().encode()
    file, unusable = usable_tuning_file()
    may_be_native = settings.NATIVE and MPI.Query_thread() == MPI.THREAD_MULTIPLE
    digest = file.digest if file else 0
    on_gpu = gpu_possible()
    own, problem = _domains()
    mine = np.array(
        [
            zlib.crc32(name) << 31 ^ zlib.crc32(name[::-1]),  # 63 bits
            digest,
            on_gpu,
            may_be_native,
            on_gpu and _cuda_aware(),
            os.cpu_count() or 1,
            own_digest(),
            not why_unusable(),
            zlib.crc32(__version__.encode()),
            bool(problem),
            *own,
        ]
    )
    table = np.empty((private.size, len(mine)), np.int64)
    exchange = private.Iallgather(mine, table)
    until(exchange.Test, "the first call of pycoll on this communicator", partial(missing, private, "taken part"))
    if table[:, 9].any():
        ranks = np.flatnonzero(table[:, 9]).tolist()
        private.Free()
        raise ValueError(problem or f"{VARIABLE} of {ranks_named(ranks)} is not of the form socket=0,numa=0,l3=0")
    if problem := _difference(private, table[:, 8], table[:, 6]):
        private.Free()
        raise MismatchError(problem)
    numbers: dict[int, int] = {}
    hosts = tuple(numbers.setdefault(name, len(numbers)) for name in table[:, 0].tolist())
    facts = CommFacts(
        hosts,
        one_tuning_file=bool((table[:, 1] == table[0, 1]).all()),
        host_memory=not table[:, 2].any(),
        library=native.library(),
        cuda_aware=bool(table[:, 4].all()),
        core=bool(table[:, 7].all()),
        native=bool(table[:, 3].all()),
        cores=int(table[:, 5].min()),
        domains=tuple(map(tuple, table[:, 10:].tolist())),
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


def _difference(private: MPI.Intracomm, versions: np.ndarray, algorithms: np.ndarray) -> str:
    """How ranks differ in the version of pycoll, or in algorithms of their own, in words; empty if they do not."""
    if differing := np.flatnonzero(versions != versions[0]).tolist():
        return (
            f"{ranks_named(differing)} of {private.size} use another version of pycoll than rank 0; "
            f"rank {private.rank} uses {__version__}: install the same version for all ranks"
        )
    if differing := np.flatnonzero(algorithms != algorithms[0]).tolist():
        own = ", ".join(map(str, own_algorithms())) or "none"
        return (
            f"{ranks_named(differing)} of {private.size} registered algorithms outside of pycoll which differ from "
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
