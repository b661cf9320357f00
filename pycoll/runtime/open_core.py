"""How the ranks of a communicator reach each other in the compiled core: memory of a host, and functions of MPI."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Sequence
from functools import cache

from mpi4py import MPI

from .. import core
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError
from . import native
from .channel import Channel
from .core_runs import arithmetic_error
from .failures import TOLERANT
from .host_memory import Process, lent_by_first
from .progress import progress, tasks

NAP = 1_000_000  # nanoseconds that a rank sleeps, or yields its core, at a time
SHORT_NAP = 20_000  # the same, while collectives are in flight, which progress between two naps


def why_unusable() -> str:
    """Why this rank cannot use the core; empty if it can."""
    if settings.EXECUTOR not in ("", "core"):
        return f"PYCOLL_EXECUTOR is {settings.EXECUTOR}"
    return core.problem or ("" if all(_functions()) else "the functions of MPI cannot be found in the module of mpi4py")


def why_not_shared() -> str:
    """Why this rank shares no memory with others; empty if it can."""
    if why := why_unusable():
        return why
    if not settings.SHARED_MEMORY:
        return "PYCOLL_SHARED_MEMORY is 0"
    if sys.platform != "linux":
        return "only Linux has files without names"
    return "ranks may fail" if TOLERANT else ""


def open_core(channel: Channel, processes: Sequence[Process]) -> tuple[core.Mailboxes | None, core.Slots | None]:
    """Open the mailboxes of a communicator, and its slots if all ranks share a host.  All ranks call this together.

    Nothing is shared between hosts with one rank each, and where ranks may fail, so that nobody waits for all of them.
    """
    comm, facts = channel.comm, channel.facts
    here = channel.registered.here
    slots = 0  # bytes
    if (facts.host_count < facts.size or facts.size == 1) and not TOLERANT:
        usable = facts.host_memory and not why_not_shared()
        slots = comm.size * core.AREA_SIZE if usable and facts.host_count == 1 else 0
        nbytes = slots + core.mailboxes_size(len(here)) if usable else 0
        channel.part, channel.reads_memory = lent_by_first(comm, facts, processes, usable, nbytes)
    if why_unusable():
        return None, None
    memory = None
    if channel.part:
        memory = channel.part.memory  # the slots come first, because they begin with pages
        channel.processes = {rank: processes[rank].number for rank in here}
    waiting = _Waiting(channel)
    *functions, probe = _functions()
    waits = facts.oversubscribed, waiting.look, waiting.give_up, (probe, MPI._handleof(comm), comm.rank, MPI.ANY_TAG)
    local_ranks = [here.index(rank) if memory and rank in here else -1 for rank in range(comm.size)]
    boxes = memory[slots:] if memory else None
    mailboxes = core.Mailboxes(
        *waits,
        boxes,
        local_ranks,
        [process.number for process in processes] if channel.reads_memory else [0] * comm.size,
        functions,
        MPI._handleof(MPI.BYTE),
        native.error_of,
        arithmetic_error,
    )
    if memory is None or facts.host_count > 1:
        return mailboxes, None
    return mailboxes, core.Slots(*waits, memory[:slots], comm.size, waiting.mismatched)


@cache
def _functions() -> list[int]:
    """The addresses of MPI_Isend, MPI_Irecv, MPI_Test and MPI_Iprobe; zeros if they cannot be found."""
    return [native.function_at(f"MPI_{name}") for name in ("Isend", "Irecv", "Test", "Iprobe")]


class _Waiting:
    """What a rank does while it waits for another one, between two naps."""

    def __init__(self, channel: Channel) -> None:
        self._channel = weakref.ref(channel)
        self._since = 0.0

    def look(self, rank: int, first: bool) -> int:
        """Let messages and other collectives progress; raise an error if the awaited rank will not come."""
        channel, now = self._channel(), time.monotonic()
        assert channel
        self._since = now if first else self._since
        progress()
        try:
            # the other rank may wait for a message of this one, which MPI sends meanwhile (MPICH 4 not in COMM_SELF)
            channel.comm.Iprobe(rank if TOLERANT else channel.comm.rank)
        except MPI.Exception as error:
            raise channel.interrupted(f"a collective that waits for rank {rank}", error) from error
        if settings.TIMEOUT and now > self._since + settings.TIMEOUT:
            late = CollectiveTimeout(
                f"{channel.running or f'a collective on rank {channel.comm.rank} of {channel.size}'} did not finish "
                f"within its timeout of {settings.TIMEOUT:g} s: it is waiting for rank {rank}"
            )
            channel.abandon(late)
            raise late
        if failure := channel.failure_on_host(rank):
            raise failure
        return SHORT_NAP if tasks else NAP

    def mismatched(self, rank: int) -> Exception:
        """Make the communicator unusable, because a rank makes another call; return the error."""
        channel = self._channel()
        assert channel
        error = MismatchError(
            f"rank {rank} calls another collective than rank {channel.comm.rank}, or has another count, dtype, "
            "operation or root, or has raised this error before; PYCOLL_CHECK=1 tells the arguments of all ranks"
        )
        channel.abandon(error)
        return error

    def give_up(self, rank: int, error: BaseException) -> None:
        """Make the communicator unusable, because a run ends early."""
        if channel := self._channel():
            channel.interrupted(f"a collective that waits for rank {rank}", error)
