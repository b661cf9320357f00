"""Attaches pycoll to communicators: creates their channels, finds them again, and frees them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from mpi4py import MPI

from .. import core
from ..base import hooks
from ..base.errors import CollectiveTimeout, CommunicatorLimit, WrongCommunicator
from ..selection.choices import Choices
from ..selection.select import CommFacts
from .channel import Channel
from .executable import free_dropped
from .facts import exchange_facts, facts_in, warn_of
from .failures import TOLERANT, failures_named
from .front import new_front
from .host_memory import Process
from .interruptions import interruptions_delayed
from .missing import missing
from .objects import objects_of
from .open_core import open_core
from .progress import drain, tasks, until
from .progress_thread import forget_watched
from .recording.steps import identity, ranks_in
from .topology import CommTopology, topology_of, with_topology
from .tuned import fitting

# Channels by the handle of the communicator of the caller.  MPI may reuse a handle after the communicator is freed, so
# each channel is also an attribute of that communicator; deletion of the attribute removes the channel.
channels: dict[int, Channel] = {}

_forked = False  # whether MPI was initialized when this process was forked
_BARRIER_TAG = 0  # a tag that no collective uses


def attach(comm: MPI.Comm | None = None) -> Channel:
    """Prepare a communicator for pycoll; the first time, all its ranks must call this together.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    Channel
        The state that pycoll keeps for the communicator.

    Raises
    ------
    TypeError
        If `comm` is not an intracommunicator.
    CollectiveTimeout
        If the other ranks take longer than ``PYCOLL_TIMEOUT``.
    MPI.Exception
        If MPI cannot create another communicator.
    MismatchError
        If the ranks use different versions of pycoll, have registered different algorithms outside of it, or if only
        some have ``PYCOLL_EXECUTOR=reference``.

    Notes
    -----
    Blocking and persistent functions attach at their first call on a communicator.  Nonblocking functions do not.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    check_communicator(comm)
    if channel := channels.get(comm.handle):
        return channel
    if _forked:
        raise RuntimeError("this process was forked from one that uses MPI, so it cannot use communicators")
    what = "the first call of pycoll on this communicator"
    with interruptions_delayed(), failures_named(comm, what):
        plain, state = with_topology(comm), partial(missing, comm, "made this call")
        exchange, table = exchange_facts(plain)
        try:
            try:
                private, request = plain.Idup()  # not Dup, so that collectives in flight progress meanwhile
            except MPI.Exception:
                until(exchange.Test, what, state)
                raise
            # if the wait fails, `until` keeps this function, and so the communicator that MPI may still write
            until(lambda: exchange.Test() and request.Test() and bool(private), what, state)
        except MPI.Exception as error:
            raise explained(error) from error
        facts, processes = facts_in(table, private)
        topology = topology_of(private, facts.on_host_of(private.rank))
        return _register(comm, private, facts, processes, _chosen.get(comm.handle), topology)


def is_new(comm: object) -> bool:
    """Whether attaching to the communicator must wait for the other ranks."""
    return getattr(comm, "handle", None) not in channels


_chosen: dict[int, Choices] = {}  # for communicators without a channel


def choices_of(comm: MPI.Comm) -> Choices:
    """The algorithms that were chosen for a communicator."""
    check_communicator(comm)
    handle = comm.handle
    if channel := channels.get(handle):
        return channel.choices
    if handle not in _chosen:
        _chosen[handle] = Choices()
        comm.Set_attr(keyval(), None)  # so that they are deleted with the communicator
    return _chosen[handle]


def known_choices(comm: MPI.Comm) -> Choices | None:
    """The same, or None if none was chosen."""
    channel = channels.get(comm.handle)
    return channel.choices if channel else _chosen.get(comm.handle)


def inherit(child: MPI.Comm, parent: MPI.Comm) -> None:
    """Give a new communicator the algorithms that were chosen for its parent."""
    known = Choices.ever_made and known_choices(parent)
    if known and child != MPI.COMM_NULL:
        choices_of(child).update(known)


def wait_for_ranks(comm: MPI.Intracomm, what: str, group: MPI.Group | None = None) -> None:
    """Wait until all ranks, or the ranks of a group, have called this; all tasks progress meanwhile.

    Afterwards, the caller can call an MPI function that blocks until all these ranks call it: no task has to progress
    before it returns.
    """
    private = attach(comm).comm
    state = partial(missing, private if group is None else group, "called it")
    with failures_named(private, what):
        if group is None:
            until(private.Ibarrier().Test, what, state)
        elif group.rank != MPI.UNDEFINED:  # a dissemination barrier
            everyone = private.Get_group()
            ranks = MPI.Group.Translate_ranks(group, None, everyone)
            everyone.Free()
            for distance in (1 << bit for bit in range((group.size - 1).bit_length())):
                to, source = (ranks[(group.rank + step) % group.size] for step in (distance, -distance))
                requests = [
                    private.Isend([None, MPI.BYTE], to, _BARRIER_TAG),
                    private.Irecv([None, MPI.BYTE], source, _BARRIER_TAG),
                ]
                until(partial(MPI.Request.Testall, requests), what, state)


def check_running() -> None:
    """Raise RuntimeError if MPI does not run in this process; MPI itself would end the process."""
    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise RuntimeError(
            "MPI is not initialized in this process, or has been finalized; a process that multiprocessing has started "
            "is not a rank, and cannot communicate"
        )


def check_communicator(comm: object) -> None:
    """Raise TypeError unless this is an intracommunicator, and RuntimeError if MPI does not run."""
    check_running()
    if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL:
        raise WrongCommunicator("comm is MPI.COMM_NULL: it has been freed, or this rank is not in it")
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")


def explained(error: MPI.Exception) -> Exception:
    """The error to raise if MPI fails to create a communicator: CommunicatorLimit if MPI does not report the reason."""
    if error.Get_error_class() not in (MPI.ERR_OTHER, MPI.ERR_INTERN):
        return error
    return CommunicatorLimit(
        "MPI could not create another communicator. pycoll needs a private duplicate of each communicator that "
        f"it is used on, and this process has {len(channels)} such pairs now. Free communicators that are no "
        f"longer needed. The error of MPI: {error}"
    )


def revoke(comm: MPI.Comm) -> None:
    """Revoke a communicator and its private duplicate, so that no rank waits forever in a collective of pycoll."""
    MPI.Intracomm.Revoke(comm)
    with contextlib.suppress(MPI.Exception, CollectiveTimeout):  # the duplicate could not be created
        if channel := channels.get(comm.handle):
            channel.revoke()


def shrink(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Create a communicator of the ranks that have not failed, and attach to it.

    Its private duplicate is also created by MPI_Comm_shrink, which completes despite failures, with the same result on
    all ranks.  Nothing else here sends messages.
    """
    child = MPI.Intracomm(MPI.Intracomm.Shrink(comm))
    known = channels.get(comm.handle)
    if known is None or not TOLERANT:
        inherit(child, comm)
        return child
    while (private := MPI.Intracomm(child.Shrink())).size < child.size:  # another process has died meanwhile
        child.Free()
        child = private
    ranks = ranks_in(child, comm)
    numbers: dict[int, int] = {}
    hosts = tuple(numbers.setdefault(known.facts.hosts[rank], len(numbers)) for rank in ranks)
    facts = replace(known.facts, hosts=hosts, domains=tuple(known.facts.domains[rank] for rank in ranks))
    choices = Choices()
    choices.update(known.choices)
    _register(child, private, facts, (), choices)
    return child


def _register(
    comm: MPI.Comm,
    private: MPI.Intracomm,
    facts: CommFacts,
    processes: Sequence[Process],
    choices: Choices | None,
    topology: CommTopology | None = None,
) -> Channel:
    identity(private)
    channel = Channel(private, facts, Choices() if choices is None else choices, fitting(facts))
    channel.topology = topology
    channel.mailboxes, channel.slots = open_core(channel, processes)
    channel.front = new_front(channel)
    channel.objects = objects_of(comm, channel)
    comm.Set_attr(keyval(), channel)
    channels[comm.handle] = channel
    for call in hooks.channel_made:
        call(private)
    warn_of(facts)
    return channel


@cache
def keyval() -> int:
    """Return the key of the attribute that keeps the channel of a communicator."""
    return MPI.Comm.Create_keyval(delete_fn=_detach)


def finish_tasks(channel: Channel) -> None:
    """Wait for the collectives in flight on a channel, unless they may never complete."""
    if not channel.broken or channel.comm.Is_revoked():
        drain(channel)


def _detach(comm: MPI.Comm, keyval: int, channel: Channel | None) -> None:
    _chosen.pop(comm.handle, None)
    if channel is None:
        return
    finish_tasks(channel)
    free_dropped()
    for handle in [handle for handle, other in channels.items() if other is channel]:
        del channels[handle]
    channel.free()
    channel.choices.changed = Choices().changed  # the two refer to each other


def _in_child() -> None:
    """Let a forked process use no communicator of its parent."""
    global _forked
    _forked = MPI.Is_initialized()
    error = RuntimeError("it belongs to the process that forked this one")
    for task in tasks:
        task.error, task.done = error, True
    tasks.clear()
    forget_watched()
    core.forget_in_flight()
    for channel in channels.values():
        channel.broken = error
        channel.part = None  # its flag is that of the parent
        channel.stop_core()


os.register_at_fork(after_in_child=_in_child)


def _forget_plans() -> None:
    for channel in list(channels.values()):
        channel.forget_plans()


hooks.epoch_began.append(_forget_plans)
