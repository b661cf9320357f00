"""Plans: the common part of calls of one kind, which is everything except the addresses of the buffers.

Short buffers are copied through buffers of the channel, as in an eager protocol of MPI, so that one executable serves
all addresses.  For long buffers there is an executable for each pair of addresses that occurred in several calls.  At
other addresses they are copied too or, if they are longer still, an executable is made for the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address, apart, overlap
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..arguments.signature import is_array
from ..compiler.program import Program, is_native
from .bind import lowered
from .executable import Executable, freed_at_its_end

if TYPE_CHECKING:
    from .channel import Channel

MOST_IDLE = 16  # the most executables of tasks that each plan keeps
MOST_LONG_IDLE = 4  # of them with copies of long buffers
MOST_SCRATCH = 1 << 12  # the most bytes of scratch that each of them may have
MOST_SEEN = 128  # the most addresses that each plan remembers
EAGER = 1 << 12  # the longest buffer, in bytes, for which copying takes no longer than looking up addresses
STAGED = 1 << 16  # the longest buffer for which copying takes less time than making an executable


@dataclass(kw_only=True, eq=False, repr=False)
class Plan(ABC):
    """The program for calls of one kind, and its executables."""

    name: str  # in error messages
    channel: Channel
    program: Program
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    used: tuple[int, int]  # the bytes of the two buffers from their beginning; the arrays may be longer
    operation: Operation | None
    op: object  # of the caller; kept so that its id is not reused
    reads_send: bool
    uses_recv: bool
    writes_recv: bool  # on the host
    reads_recv: bool
    running: Executable | None = None
    allocates: tuple[tuple[int, ...], np.dtype] | None = None  # shape and dtype of a receive buffer to be allocated
    answer: Callable[[Any], Any] | None = None  # makes the result, if it is not the receive buffer that was passed
    binds: ClassVar[bool] = False  # whether all parts of a task are bound when others are complete

    def common(self) -> dict[str, Any]:
        """The fields that all plans for these calls have."""
        return {one.name: getattr(self, one.name) for one in fields(Plan)}

    @abstractmethod
    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """The parts of a task on these buffers; None if they need a full check."""
        if not self._fits(send, recv):
            return None
        return self._parts(send, recv, 0 if is_native(self.program) else self.channel.next_tag())

    def _fits(self, send: Any, recv: Any) -> bool:
        """Whether these buffers are contiguous, writeable where necessary, and do not overlap."""
        if self.reads_send and not send.flags.c_contiguous:
            return False
        if self.uses_recv and not (recv.flags.carray if self.writes_recv else recv.flags.c_contiguous):
            return False
        return not (self.reads_send and self.uses_recv) or apart(send, recv)

    @abstractmethod
    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]: ...

    def addresses(self, send: Any, recv: Any) -> tuple[int, int]:
        """The addresses of the buffers that are used, or 0."""
        return address(send) if self.reads_send else 0, address(recv) if self.uses_recv else 0

    def buffers(self, send: Any, recv: Any) -> CheckedBuffers:
        """The buffers of a call with these arrays."""
        given, got = self.used
        return self.like.at(
            _beginning(send, given) if self.reads_send else None, _beginning(recv, got) if self.uses_recv else None
        )

    @abstractmethod
    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Use this executable for buffers at these addresses."""

    @abstractmethod
    def forget(self, key: Any) -> None:
        """Drop the executable with this key among the plans that it knows, because it is freed."""


@dataclass(kw_only=True, eq=False, repr=False)
class StagedPlan(Plan):
    """A plan for short buffers in host memory, which are copied; programs work on the copies."""

    send_stage: Any  # the copy of the send buffer
    recv_stage: Any  # the copy of the receive buffer
    executable: Executable | None = None  # for these two copies
    idle: list[tuple[Executable, Any, Any]] = field(default_factory=list)  # of tasks, each with its own two copies
    most_idle: int  # the most that are kept

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        if not self._fits(send, recv):
            return False
        executable = self.running = self.executable or self._bound()
        if self.reads_send:
            self.send_stage[...] = send
        if self.reads_recv:
            self.recv_stage[...] = recv
        interrupted = executable.interrupted
        try:
            executable.run()
        except BaseException:
            if self.writes_recv and executable.interrupted != interrupted:  # it has run to its end all the same
                recv[...] = self.recv_stage
            raise
        if self.writes_recv:
            recv[...] = self.recv_stage
        return True

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Do nothing: one executable serves all addresses."""

    def forget(self, key: Any) -> None:
        """Drop the executable, because it is freed."""
        self.executable = None

    def _bound(self) -> Executable:
        self.executable = self.channel.bind(
            self.program, self.like.at(self.send_stage, self.recv_stage), self.operation
        )
        self.executable.known.append((self, None))
        return self.executable

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        executable, send_stage, recv_stage = stage = self.idle.pop() if self.idle else self._new_stage(send, recv)
        executable.tag[:] = (tag,)
        if self.reads_send:
            send_stage[...] = send
        if self.reads_recv:
            recv_stage[...] = recv
        yield executable
        if self.writes_recv:
            recv[...] = recv_stage
        if len(self.idle) < self.most_idle:
            self.idle.append(stage)

    def _new_stage(self, send: Any, recv: Any) -> tuple[Executable, Any, Any]:
        send_stage = np.empty_like(send) if self.reads_send else None
        recv_stage = np.empty_like(recv) if self.uses_recv else None
        buffers, places = self.like.at(send_stage, recv_stage), (address(send_stage), address(recv_stage))
        program = lowered(self.program, buffers, self.operation)
        return self.channel.bind_anew(program, buffers, places, self.operation, in_flight=True), send_stage, recv_stage


@dataclass(kw_only=True, eq=False, repr=False)
class PlacedPlan(Plan):
    """A plan for long buffers, and for buffers in GPU memory."""

    on_host: bool
    address: Callable[[Any], int]
    lowered: Program  # the program for the kind of memory of the buffers
    bound: dict[tuple[int, int], Executable] = field(default_factory=dict)  # by the addresses of the buffers
    seen: set[tuple[int, int]] = field(default_factory=set)  # addresses without an executable
    stage: Callable[[Any, Any], StagedPlan] | None  # makes a plan that copies, if the buffers are not too long
    staged: StagedPlan | None = None  # created at first use
    idle: dict[tuple[int, int], Executable] = field(default_factory=dict)  # of tasks, by the addresses of the buffers

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        start = other = 0
        if self.reads_send:
            if not send.flags.c_contiguous:
                return False
            start = self.address(send)
        if self.uses_recv:
            if not (recv.flags.carray if self.writes_recv else recv.flags.c_contiguous):
                return False
            other = self.address(recv)
        executable = self.running = self.bound.get((start, other))
        if executable is None:
            return self._run_elsewhere(send, recv, (start, other))
        executable.run()
        return True

    def _run_elsewhere(self, send: Any, recv: Any, places: tuple[int, int]) -> bool:
        """Run on buffers without an executable; return False if they need a full check."""
        (start, other), (given, got) = places, self.used
        if not self.on_host or (self.reads_send and self.uses_recv and overlap(start, given, other, got)):
            return False
        if self._are_known(places):
            executable = self.running = self.channel.bind(self.program, self.buffers(send, recv), self.operation)
            self.keep(executable, places)
            executable.run()
            return True
        if self.stage:
            staged = self.staged = self.staged or self.stage(send, recv)
            try:
                return staged.run(send, recv)
            finally:
                self.running = staged.running
        buffers = self.buffers(send, recv) if is_native(self.program) else self.like
        executable = self.running = self.channel.bind_anew(self.lowered, buffers, places, self.operation)
        try:
            executable.run()
        finally:
            if not executable.failed:
                executable.free()
        return True

    def _are_known(self, places: tuple[int, int]) -> bool:
        """Whether buffers at these addresses have been used before; remember them."""
        if places in self.seen:
            return True
        if len(self.seen) == MOST_SEEN:
            self.seen.clear()
        self.seen.add(places)
        return False

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        places = self.addresses(send, recv)
        if is_native(self.program):
            yield freed_at_its_end(self.channel.bind(self.program, self.buffers(send, recv), self.operation, tag))
            return
        executable = self.idle.pop(places, None)
        if executable is None:
            if self.stage and not self._are_known(places):
                staged = self.staged = self.staged or self.stage(send, recv)
                yield from staged._parts(send, recv, tag)
                return
            executable = self.channel.bind_anew(self.lowered, self.like, places, self.operation, in_flight=True)
        executable.tag[:] = (tag,)
        yield executable
        if self.lowered.scratch <= MOST_SCRATCH:
            if len(self.idle) == MOST_IDLE:
                self.idle.clear()
            self.idle[places] = executable
        del send, recv  # they must live until here

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Use this executable for buffers at these addresses."""
        self.bound[places] = executable
        executable.known.append((self, places))

    def forget(self, key: Any) -> None:
        """Drop the executable for buffers at these addresses, because it is freed."""
        self.bound.pop(key, None)


def make_plan(
    name: str,
    channel: Channel,
    program: Program,
    buffers: CheckedBuffers,
    operation: Operation | None,
    op: object,
    send: Any,
    recv: Any,
) -> Plan | None:
    """A plan for calls like this one; None if it could not be used with other addresses.

    `send` and `recv` are the arrays of the caller, or placeholders.
    """
    gives, gets = buffers.send is not None, buffers.recv is not None
    if not (_is_begun(send, buffers.send) and _is_begun(recv, buffers.recv)):
        return None
    if buffers.in_place and gets and not buffers.read_only and is_array(send) and is_array(recv):
        return None  # the same array twice
    on_host = buffers.memory is HOST
    alike: dict[str, Any] = {
        "name": name,
        "channel": channel,
        "program": program,
        "like": buffers.at(None, None),
        "used": tuple(0 if array is None else int(array.nbytes) for array in (buffers.send, buffers.recv)),
        "operation": operation,
        "op": op,
        "reads_send": gives,
        "uses_recv": gets,
        "writes_recv": gets and on_host and not buffers.read_only,
        "reads_recv": gets and buffers.in_place,
    }
    sizes = [array.nbytes for array, used in ((send, gives), (recv, gets)) if used]
    wanted = [array.nbytes for array in (buffers.send, buffers.recv) if array is not None]
    # memory between blocks may change during the call, and NumPy does not copy hidden fields of a dtype
    safe = not buffers.has_gaps() and not any(array.dtype.type is np.void for array in (send, recv) if is_array(array))
    longest, copied = max(sizes, default=0), on_host and sizes == wanted and safe
    if copied and longest <= EAGER:
        return _staged(alike, True, send, recv)
    return PlacedPlan(
        **alike,
        on_host=on_host,
        address=MPI.Get_address if on_host else address,
        lowered=lowered(program, buffers, operation),
        stage=partial(_staged, alike, False) if copied and longest <= STAGED else None,
    )


def _staged(alike: dict[str, Any], eager: bool, send: Any, recv: Any) -> StagedPlan:
    """A plan that copies buffers like these."""
    send_stage, recv_stage = alike["channel"].stage(EAGER if eager else STAGED)
    return StagedPlan(
        **alike,
        send_stage=_like(send_stage, send) if alike["reads_send"] else None,
        recv_stage=_like(recv_stage, recv) if alike["uses_recv"] else None,
        most_idle=MOST_IDLE if eager else MOST_LONG_IDLE,
    )


def _like(area: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The beginning of this memory, as an array like `array`."""
    return area[: array.nbytes].view(array.dtype).reshape(array.shape)


def _beginning(array: Any, nbytes: int) -> Any:
    """The beginning of a contiguous array, in bytes if it is not the whole array."""
    return array if array.nbytes == nbytes else array.reshape(-1).view(np.uint8)[:nbytes]


def _is_begun(array: Any, used: Any) -> bool:
    """Whether the part of the array of the caller that is used starts at its beginning."""
    return used is None or (is_array(array) and address(array) == address(used) and array.nbytes >= used.nbytes)
