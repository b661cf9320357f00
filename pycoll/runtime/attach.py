"""Attaches pycoll to communicators: creates their channels, finds them again, and frees them."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from dataclasses import replace
from functools import cache, partial

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.device_arrays import gpu_possible
from ..base import hooks, settings
from ..base.command_line import runs_alone
from ..base.errors import CollectiveTimeout, CommunicatorLimit, MismatchError, WrongCommunicator
from ..base.numbers import ranks_named
from ..base.user_warnings import warn
from ..base.version import __version__
from ..schedule.registry import own_algorithms, own_digest
from ..selection import tuning_file
from ..selection.choices import Choices, unknown_variables
from ..selection.select import CommFacts
from . import native
from .channel import Channel
from .failures import failures_named
from .garbage import free_dropped
from .host import open_core, why_unusable
from .interruptions import interruptions_delayed
from .objects import objects_of
from .progress import drain, tasks, until
from .recording.steps import identity, ranks_in
from .slots import new_front

# Channels by the handle of the communicator of the caller.  MPI may reuse a handle after the communicator is freed, so
# each channel is also an attribute of that communicator; deletion of the attribute removes the channel.
channels: dict[int, Channel] = {}

_forked = False  # whether MPI was initialized when this process was forked
_MEETING = 0  # a tag that no collective uses


def attach(comm: MPI.Intracomm | None = None) -> Channel:
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
        If the ranks use different versions of pycoll, or have registered different algorithms outside of it.

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
        try:
            private, request = MPI.Intracomm(comm).Idup()  # not Dup, so that collectives in flight progress meanwhile
            until(request.Test, what, partial(_missing, comm, "made this call"))
        except MPI.Exception as error:
            raise explained(error) from error
        return _register(comm, private, _facts(private), _chosen.get(comm.handle))


def is_new(comm: object) -> bool:
    """Whether attaching to the communicator must wait for the other ranks."""
    return getattr(comm, "handle", None) not in channels


_chosen: dict[int, Choices] = {}  # for communicators without a channel


def choices_of(comm: MPI.Intracomm) -> Choices:
    """The algorithms that were chosen for a communicator."""
    check_communicator(comm)
    handle = comm.handle
    if channel := channels.get(handle):
        return channel.choices
    if handle not in _chosen:
        _chosen[handle] = Choices()
        comm.Set_attr(_keyval(), None)  # so that they are deleted with the communicator
    return _chosen[handle]


def known_choices(comm: MPI.Intracomm) -> Choices | None:
    """The same, or None if none was chosen."""
    channel = channels.get(comm.handle)
    return channel.choices if channel else _chosen.get(comm.handle)


def inherit(child: MPI.Intracomm, parent: MPI.Intracomm) -> None:
    """Give a new communicator the algorithms that were chosen for its parent."""
    known = known_choices(parent)
    if known and child != MPI.COMM_NULL:
        choices_of(child).update(known)


def wait_for_ranks(comm: MPI.Intracomm, what: str, group: MPI.Group | None = None) -> None:
    """Wait until all ranks, or the ranks of a group, have called this; all tasks progress meanwhile.

    Afterwards, the caller can call an MPI function that blocks until all these ranks call it: no task has to progress
    before it returns.
    """
    private = attach(comm).comm
    with failures_named(private, what):
        _meet(private, what, group)


def _meet(private: MPI.Intracomm, what: str, group: MPI.Group | None) -> None:
    state = partial(_missing, private if group is None else group, "called it")
    if group is None:
        until(private.Ibarrier().Test, what, state)
    elif group.rank != MPI.UNDEFINED:  # a dissemination barrier
        everyone = private.Get_group()
        ranks = MPI.Group.Translate_ranks(group, None, everyone)
        everyone.Free()
        for distance in (1 << bit for bit in range((group.size - 1).bit_length())):
            to, source = (ranks[(group.rank + step) % group.size] for step in (distance, -distance))
            requests = [
                private.Isend([None, MPI.BYTE], to, _MEETING),
                private.Irecv([None, MPI.BYTE], source, _MEETING),
            ]
            until(partial(MPI.Request.Testall, requests), what, state)


def check_communicator(comm: object) -> None:
    """Raise TypeError unless this is an intracommunicator."""
    if isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL:
        raise WrongCommunicator("comm is MPI.COMM_NULL: it has been freed, or this rank is not in it")
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")


def _missing(ranks: MPI.Intracomm | MPI.Group, what: str) -> str:
    """Why a call that all ranks must make has not returned, in words."""
    absent = [] if isinstance(ranks, MPI.Group) else _absent(ranks)
    if not absent:
        return f"rank {ranks.rank} waits, because at least one of the {ranks.size} ranks has not {what}"
    who = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {', '.join(map(str, absent))} have"
    return f"rank {ranks.rank} of {ranks.size} waits, because {who} not {what}, or did so only after rank {ranks.rank}"


def _absent(comm: MPI.Intracomm) -> list[int]:
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


def explained(error: MPI.Exception) -> Exception:
    """The error to raise if MPI fails to create a communicator: CommunicatorLimit if MPI does not report the reason."""
    if error.Get_error_class() not in (MPI.ERR_OTHER, MPI.ERR_INTERN):
        return error
    return CommunicatorLimit(
        "MPI could not create another communicator. pycoll needs a private duplicate of each communicator that "
        f"it is used on, and this process has {len(channels)} such pairs now. Free communicators that are no "
        f"longer needed. The error of MPI: {error}"
    )


def revoke(comm: MPI.Intracomm) -> None:
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
    if known is None:
        inherit(child, comm)
        return child
    while (private := MPI.Intracomm(child.Shrink())).size < child.size:  # another process has died meanwhile
        child.Free()
        child = private
    hosts = [known.facts.hosts[rank] for rank in ranks_in(child, comm)]
    numbers: dict[int, int] = {}
    facts = replace(known.facts, hosts=tuple(numbers.setdefault(host, len(numbers)) for host in hosts))
    choices = Choices()
    choices.update(known.choices)
    _register(child, private, facts, choices)
    return child


def _register(comm: MPI.Intracomm, private: MPI.Intracomm, facts: CommFacts, choices: Choices | None) -> Channel:
    identity(private)
    channel = Channel(private, facts, Choices() if choices is None else choices, fitting(facts))
    channel.mailboxes, channel.slots = open_core(channel)
    if comm.size == 1:
        _warn_if_alone()
    channel.front = new_front(channel)
    channel.objects = objects_of(comm, channel)
    comm.Set_attr(_keyval(), channel)
    channels[comm.handle] = channel
    for call in hooks.channel_made:
        call(private)
    return channel


@cache
def _warn_if_alone() -> None:
    _warn(runs_alone(MPI.COMM_WORLD.size))


@cache
def _keyval() -> int:
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
    tasks.clear()
    core.forget_in_flight()
    for channel in channels.values():
        channel.broken = RuntimeError("it belongs to the process that forked this one")
        channel.stop_core()
        channel.forget_plans()


os.register_at_fork(after_in_child=_in_child)


def _forget_plans() -> None:
    for channel in list(channels.values()):
        channel.forget_plans()


hooks.epoch_began.append(_forget_plans)


def _facts(private: MPI.Intracomm) -> CommFacts:
    """The host of each rank, and other facts that the ranks must know about each other.

    Hosts are compared by processor name, because Split_type would block the progress of collectives in flight.
    """
    name = MPI.Get_processor_name().encode()
    file, unusable = usable_tuning_file()
    may_be_native = settings.NATIVE and MPI.Query_thread() == MPI.THREAD_MULTIPLE
    digest = file.digest if file else 0
    on_gpu = gpu_possible()
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
        ]
    )
    table = np.empty((private.size, len(mine)), np.int64)
    exchange = private.Iallgather(mine, table)
    until(exchange.Test, "the first call of pycoll on this communicator", partial(_missing, private, "taken part"))
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
        direct=bool(table[:, 4].all()),
        machine=bool(table[:, 7].all()),
        native=bool(table[:, 3].all()),
        cores=int(table[:, 5].min()),
    )
    _warn(unknown_variables())
    _warn(unusable)  # after the exchange, since the caller may turn warnings into errors
    if not facts.one_tuning_file:
        _warn("the ranks have different tuning files, so none is used")
    return facts


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
def usable_tuning_file() -> tuple[tuning_file.TuningFile | None, str]:
    """The tuning file if there is a usable one, and a warning if the file cannot be used."""
    path = tuning_file.path_in_use()
    if path is None:
        return None, ""
    try:
        file = tuning_file.read(path)
        if native.library() not in file.libraries():
            raise tuning_file.InvalidTuningFile(
                f"it was measured with {', '.join(file.libraries())}; this is {native.library()}"
            )
        return file, ""
    except tuning_file.InvalidTuningFile as error:
        return None, f"the tuning file {path} is not used: {error}"


def fitting(facts: CommFacts) -> tuning_file.Tuned | None:
    """The measurement that fits a communicator, or None."""
    file = usable_tuning_file()[0] if facts.one_tuning_file else None
    return file.fitting(native.library(), facts.size, facts.host_count) if file else None


def tuning_state(channel: Channel) -> str:
    """Whether a tuning file is in use, in words."""
    tuned, facts = channel.tuned, channel.facts
    if tuned:
        return f"{tuned.path}, measured {tuned.environment.get('date', 'at an unknown time')}"
    if not facts.one_tuning_file:
        return "none, the ranks have different files"
    if file := usable_tuning_file()[0]:
        return f"none, {file.path} has no measurement of {facts.size} ranks on {facts.host_count} hosts"
    return "none"


@cache
def _warn(text: str) -> None:
    if text and MPI.COMM_WORLD.rank == 0:
        warn(text)
