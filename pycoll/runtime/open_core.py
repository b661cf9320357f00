"""How the ranks of a communicator reach each other in the compiled core: memory of a host, and functions of MPI."""

from __future__ import annotations

import mmap
import os
import sys
import time
import weakref

import numpy as np
from mpi4py import MPI

from .. import core
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError
from . import native, shared_file
from .channel import Channel
from .core_runs import arithmetic_error
from .failures import TOLERANT
from .progress import progress, tasks, until

NAP = 1_000_000  # nanoseconds that a rank sleeps at a time
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


def open_core(channel: Channel) -> tuple[core.Mailboxes | None, core.Slots | None]:
    """Open the mailboxes of a communicator, and its slots if all ranks share a host.  All ranks call this together.

    Nothing is shared between hosts with one rank each, and where ranks may fail, so that nobody waits for all of them.

    The first rank of a host creates the memory, and the others open it.  A random number in the memory of each process
    shows whether another one can copy from there.
    """
    comm, facts = channel.comm, channel.facts
    here, memory, processes, copies = facts.on_host_of(comm.rank), None, [os.getpid()] * comm.size, False
    usable = facts.host_memory and not why_not_shared()
    if facts.size == 1 and usable:
        memory, copies = memoryview(mmap.mmap(-1, core.mailboxes_size(1) + core.AREA_SIZE)), True
    elif facts.host_count < facts.size and not TOLERANT:
        memory, processes, copies = _shared(comm, here, usable, facts.host_count == 1)
    if why_unusable():
        return None, None
    channel.processes = {rank: processes[rank] for rank in here} if memory else {}
    channel.reads_memory = copies
    waiting = _Waiting(channel)
    waits = facts.oversubscribed, waiting.look, waiting.give_up
    local_ranks = [here.index(rank) if memory and rank in here else -1 for rank in range(comm.size)]
    slots = comm.size * core.AREA_SIZE if facts.host_count == 1 else 0  # come first, because they begin with pages
    boxes = memory[slots:] if memory else None
    handles = MPI._handleof(MPI.BYTE), MPI._handleof(comm)
    mailboxes = core.Mailboxes(
        *waits,
        boxes,
        local_ranks,
        comm.rank,
        processes if copies else [0] * comm.size,
        _functions(),
        handles,
        native.error_of,
        arithmetic_error,
    )
    if memory is None or facts.host_count > 1:
        return mailboxes, None
    return mailboxes, core.Slots(*waits, memory[:slots], comm.rank, comm.size, waiting.mismatched)


def _functions() -> list[int]:
    """The addresses of MPI_Isend, MPI_Irecv and MPI_Test; zeros if they cannot be found."""
    return [native.function_at(f"MPI_{name}") for name in ("Isend", "Irecv", "Test")]


def _shared(
    comm: MPI.Intracomm, here: list[int], usable: bool, slots: bool
) -> tuple[memoryview | None, list[int], bool]:
    """The memory of this host, or None; the processes of all ranks; whether they can copy each other's memory."""
    nbytes = 0 if core.problem else core.mailboxes_size(len(here)) + (len(here) * core.AREA_SIZE if slots else 0)
    token = np.frombuffer(os.urandom(8), np.int64)
    file, mine = -1, usable
    try:
        if usable and comm.rank == here[0]:
            try:
                file = shared_file.created(nbytes)
            except OSError:
                mine = False
        location = shared_file.NOWHERE if file < 0 else shared_file.where(file)
        found = _gathered(comm, [mine, *location, os.getpid(), int(token[0]), token.ctypes.data])
        memory = _mapped(found[here[0], 1 : 1 + shared_file.WHERE].tolist(), nbytes) if found[here, 0].all() else None
        process, number, address = found[here[here.index(comm.rank) - 1], -3:].tolist()
        copies = memory is not None and core.copied(process, address) == number
        results = _gathered(comm, [memory is not None, copies])[here]
    finally:
        if file >= 0:
            os.close(file)
    return memory if results[:, 0].all() else None, found[:, -3].tolist(), bool(results[:, 1].all())


def _gathered(comm: MPI.Intracomm, mine: list[int]) -> np.ndarray:
    table = np.empty((comm.size, len(mine)), np.int64)
    until(comm.Iallgather(np.array(mine, np.int64), table).Test, "opening the memory that the ranks of a host share")
    return table


def _mapped(location: list[int], nbytes: int) -> memoryview | None:
    """The memory of a file, or None."""
    try:
        file = shared_file.opened(location)
    except OSError:  # another container, or another user
        return None
    try:
        return shared_file.mapped(file, nbytes)
    except OSError:
        return None
    finally:
        os.close(file)


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
                f"a collective on rank {channel.comm.rank} of {channel.size} did not finish within its timeout of "
                f"{settings.TIMEOUT:g} s: it is waiting for rank {rank}"
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
