"""What pycoll keeps for each communicator: a private duplicate, and programs bound to the buffers of the last calls."""

from __future__ import annotations

import hashlib
import warnings
import weakref
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from . import native, settings, tuning
from .binding import Bound, adapted, bind, freed_at_its_end
from .buffers import IN_PLACE, Arguments
from .cuda.arrays import gpu_possible
from .errors import CollectiveTimeout
from .memory import HOST, address, is_host
from .ops import Operation
from .program import BLOCKING, Program
from .trace.steps import identity

KEPT = 256  # bound programs kept for each communicator


class Shortcut(NamedTuple):
    """Leads from the very objects of a call to its program.

    An array with a weak reference to it cannot be resized: while it lives, its address stays.
    """

    bound: Bound
    send: Callable[[], Any]
    recv: Callable[[], Any]
    writeable: bool  # the receive buffer always, since it lies on a GPU
    dtype: np.dtype
    op: object  # kept, so that its id is not used again


class Known(NamedTuple):
    """What all ranks of a communicator know of each other, and the communicators made from it inherit."""

    one_file: bool  # all have the same tuning file, or none
    host_memory: bool  # none can have buffers on a GPU


class Channel:
    """What pycoll keeps for one communicator: a private duplicate, scratch memory, bound programs."""

    def __init__(self, comm: MPI.Intracomm, private: MPI.Intracomm, hosts: tuple[int, ...], known: Known) -> None:
        self.comm = private
        self.size = comm.size
        self.known = known
        self.place(hosts)
        self.choices = settings.Choices(self.shortcuts_forgotten)
        self.shortcuts: dict[tuple, Shortcut] = {}  # at most one for each bound program
        self.broken: str | None = None  # why it cannot be used any more
        self._bound: dict[tuple, Bound] = {}  # the one that `bind` gave out last stands last
        self._scratch: dict[Hashable, Any] = {HOST.scratch: HOST.room(1 << 16)}  # for each kind of memory
        self._tags = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - BLOCKING
        self._started = 0

    def place(self, hosts: tuple[int, ...]) -> None:
        """Say on which host each rank is."""
        self.hosts, self.host_count = hosts, len(set(hosts))
        file = tuning_file()[0] if self.known.one_file else None
        self.tuned = file and file.fitting(native.library(), self.size, self.host_count)

    @property
    def tuning_state(self) -> str:
        """Whether a tuning file is in use, in words."""
        if self.tuned:
            return f"{self.tuned.path}, measured {self.tuned.environment.get('date', 'at an unknown time')}"
        if not self.known.one_file:
            return "none, the ranks have different files"
        if file := tuning_file()[0]:
            return f"none, {file.path} has no measurement of {self.size} ranks on {self.host_count} hosts"
        return "none"

    @property
    def nonblocking(self) -> bool:
        """Whether there were nonblocking or persistent collectives on it; all ranks agree on that."""
        return self._started > 0

    def check_usable(self) -> None:
        """CollectiveTimeout if a collective on it did not finish in time."""
        if self.broken:
            raise CollectiveTimeout(f"this communicator cannot be used any more: {self.broken}")

    def next_tag(self) -> int:
        """The tag of the next collective that is not blocking; all ranks start these in the same order."""
        if not self._started:  # from here on MPI's own is not chosen, by no rank
            self.shortcuts_forgotten()
        self._started += 1
        return BLOCKING + 1 + (self._started - 1) % self._tags

    def bind(self, program: Program, arguments: Arguments, operation: Operation | None) -> Bound:
        """The program bound to these buffers, for a blocking call; the last `KEPT` are kept."""
        program = adapted(program, arguments, operation)
        memory = arguments.memory
        scratch = self._scratch.get(memory.scratch)
        if scratch is None or program.scratch > scratch.size:  # all programs share it, so they must be bound anew
            self.clear()
            self._scratch[memory.scratch] = scratch = memory.room(program.scratch)
        if operation and not operation.predefined:  # its handle may be freed and used again, so nothing is kept
            return freed_at_its_end(bind(self.comm, program, arguments, operation, scratch, BLOCKING))
        addresses = (address(arguments.send), address(arguments.recv))
        key = (program, memory.scratch, *addresses, arguments.dtype, operation and operation.name)
        bound = self._bound.pop(key, None) or bind(self.comm, program, arguments, operation, scratch, BLOCKING)
        if len(self._bound) >= KEPT:
            self._drop(next(iter(self._bound)))
        self._bound[key] = bound
        return bound

    def bind_apart(self, program: Program, arguments: Arguments, operation: Operation | None, tag: int) -> Bound:
        """The program bound to these buffers with scratch and a tag of its own, so that others can run meanwhile."""
        program = adapted(program, arguments, operation)
        return bind(self.comm, program, arguments, operation, arguments.memory.room(program.scratch), tag)

    def remember(
        self, bound: Bound, key: tuple, arguments: Arguments, sendbuf: object, recvbuf: object, op: object
    ) -> None:
        """Let later calls with the very same objects find the bound program under `key`, which has their ids."""
        send, recv = _reference(sendbuf, arguments.send), _reference(recvbuf, arguments.recv)
        if send and recv:
            self.shortcuts.pop(bound.shortcut, None)
            self.shortcuts[key] = Shortcut(bound, send, recv, not is_host(arguments.recv), arguments.dtype, op)
            bound.shortcut = key

    def shortcuts_forgotten(self) -> None:
        """Look at all arguments anew."""
        self.shortcuts.clear()

    def _drop(self, key: tuple) -> None:
        bound = self._bound.pop(key)
        self.shortcuts.pop(bound.shortcut, None)
        bound.free()

    def clear(self) -> None:
        """Forget all bound programs."""
        for key in list(self._bound):
            self._drop(key)

    def free(self) -> None:
        """Give everything back to MPI."""
        if not self.broken:  # else messages are under way that will never end
            self.clear()
            self.comm.Free()


def _reference(buffer: object, array: Any) -> Callable[[], object] | None:
    """A weak reference to a caller's array; None where a copy or a view stands in for it."""
    if isinstance(buffer, np.ndarray) or (buffer is array and buffer is not None):
        return weakref.ref(buffer) if array is None or buffer is array else None
    return (lambda: buffer) if buffer is None or buffer is IN_PLACE else None


# Channels by the handle of the caller's communicator.  A handle may be used again once its communicator is
# freed, so each channel is also an attribute of that communicator, whose deletion removes it.
channels: dict[int, Channel] = {}


def _detach(comm: MPI.Comm, keyval: int, channel: Channel) -> None:
    from .progress import settle

    settle(channel)
    for handle in [handle for handle, other in channels.items() if other is channel]:
        del channels[handle]
    channel.free()


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_detach)


def check_communicator(comm: object) -> None:
    """TypeError unless this is a communicator that collectives can run on."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")


def _duplicate(comm: MPI.Intracomm) -> MPI.Intracomm:
    from .progress import until  # which builds on this module

    private, request = comm.Idup()  # what is in flight must go on meanwhile
    until(request.Test)
    return private


def _finish_duplicate(comm: MPI.Intracomm) -> Channel | None:
    """The channel of a communicator whose private duplicate all ranks have begun to make, by Idup."""
    from .progress import until

    pending = getattr(comm, "pending", None)
    if pending is None:
        return None
    private, request, hosts, known = pending
    until(request.Test)
    comm.pending = None  # type: ignore[attr-defined]
    return _register(comm, private, hosts, known)


@cache
def tuning_file() -> tuple[tuning.TuningFile | None, str]:
    """The tuning file, if there is one that can be used; or why not, if that is worth a warning."""
    path = tuning.path_in_use()
    if path is None:
        return None, ""
    try:
        file = tuning.read(path)
        if native.library() not in file.libraries():
            raise tuning.Refused(f"it was measured with {', '.join(file.libraries())}; this is {native.library()}")
        return file, ""
    except tuning.Refused as error:
        return None, f"the tuning file {path} is not used: {error}"


@cache
def _warn(text: str) -> None:
    if text and MPI.COMM_WORLD.rank == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _hosts(private: MPI.Intracomm) -> tuple[tuple[int, ...], Known]:
    """The host of each rank, by the names that MPI has for them, and what else they tell each other.

    Split_type would block while what is in flight must go on.
    """
    from .progress import until

    name = hashlib.sha256(MPI.Get_processor_name().encode()).digest()[:8]
    file, problem = tuning_file()
    mine = np.array([int.from_bytes(name, "little", signed=True), file.digest if file else 0, gpu_possible()])
    told = np.empty((private.size, 3), np.int64)
    until(private.Iallgather(mine, told).Test)
    numbers: dict[int, int] = {}
    hosts = tuple(numbers.setdefault(name, len(numbers)) for name in told[:, 0].tolist())
    known = Known(bool((told[:, 1] == told[0, 1]).all()), not told[:, 2].any())
    _warn(problem)  # after the exchange, since the caller may let warnings be errors
    if not known.one_file:
        _warn("the ranks have different tuning files, so none is used")
    return hosts, known


def _register(comm: MPI.Intracomm, private: MPI.Intracomm, hosts: tuple[int, ...], known: Known) -> Channel:
    identity(private)
    channel = Channel(comm, private, hosts, known)
    channel.choices.update(getattr(comm, "inherited", {}))
    comm.Set_attr(_keyval(), channel)
    channels[comm.handle] = channel
    return channel


def attached(comm: MPI.Intracomm) -> Channel | None:
    """The communicator's channel, if it has one."""
    return channels.get(comm.handle) or _finish_duplicate(comm)


def attach(comm: MPI.Intracomm | None = None) -> Channel:
    """The communicator's channel; the first time, all its ranks must call this together."""
    comm = MPI.COMM_WORLD if comm is None else comm
    check_communicator(comm)
    if channel := attached(comm):
        return channel
    private = _duplicate(MPI.Intracomm(comm))  # not by a subclass's Dup
    channel = _register(comm, private, *_hosts(private))
    if settings.TRACE:
        from .trace.session import begin_as_set

        begin_as_set(private)
    return channel


def configure(*, segment: int | None = None, pipeline: int | None = None) -> None:
    """Set the sizes of segments in bytes, on all ranks alike; programs bound before are forgotten."""
    for name, value in (("SEGMENT", segment), ("PIPELINE", pipeline)):
        if value is None:
            continue
        if value < 1:
            raise ValueError(f"{name.lower()}={value} is not a positive number of bytes")
        setattr(settings, name, value)
    forget_programs()


def forget_programs() -> None:
    """Bind all programs anew at their next call."""
    for channel in channels.values():
        channel.clear()
