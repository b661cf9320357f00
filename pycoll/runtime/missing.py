"""Which ranks have not made a call that all ranks must make, in words."""

from __future__ import annotations

import os
import time

import numpy as np
from mpi4py import MPI

from ..base import settings
from ..base.numbers import ranks_have


def missing(ranks: MPI.Comm | MPI.Group, what: str) -> str:
    """Why a call that all ranks must make has not returned, in words."""
    absent = [] if isinstance(ranks, MPI.Group) else _absent(ranks)
    if not absent:
        return f"rank {ranks.rank} waits, because at least one of the {ranks.size} ranks has not {what}"
    why = f"{ranks_have(absent)} not {what}, or did so only after rank {ranks.rank}"
    return f"rank {ranks.rank} of {ranks.size} waits, because {why}"


def _absent(comm: MPI.Comm) -> list[int]:
    """The ranks that have not given up waiting, like this one, after a timeout; the communicator is unusable anyway."""
    here, sent = np.zeros(comm.size, np.uint8), np.ones(comm.size, np.uint8)
    ones = [1] * comm.size  # with counts, messages are not sent through other ranks
    request = MPI.Intracomm(comm).Ialltoallv([sent, ones], [here, ones])
    _asked.append((request, here, sent))
    deadline = time.monotonic() + min(settings.TIMEOUT or 0.0, _GRACE)
    while not request.Test() and time.monotonic() < deadline:
        os.sched_yield()
    return np.flatnonzero(here == 0).tolist()


_GRACE = 1.0  # seconds by which other ranks may time out later
_asked: list[object] = []  # MPI may still write to their memory
