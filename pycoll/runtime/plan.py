"""Plans: what calls with buffers of one kind have in common, which is all but the addresses.

A call whose buffers lie where those of an earlier one lay runs the executable of that call.  Other short messages are
copied through buffers of the channel, as in an eager protocol of MPI, so that one executable serves all addresses.  For
other long messages an executable is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..arguments.signature import is_array
from ..compiler.program import Program, is_native
from .executable import Executable, freed_at_its_end

if TYPE_CHECKING:
    from .channel import Channel

MOST_IDLE = 16  # executables of tasks that are kept in each plan
EAGER = 1 << 16  # bytes of a buffer up to which copying costs less than making an executable

get_address, copyto = MPI.Get_address, np.copyto


@dataclass
class Plan:
    """What is to be done for the calls of one kind: a program, and executables of it."""

    name: str  # for messages to people
    channel: Channel
    program: Program
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    operation: Operation | None
    op: object  # the caller's, kept so that its id is not used again
    gives: bool  # the send buffer is read
    gets: bool  # the receive buffer is used
    writes: bool  # the receive buffer is written
    on_host: bool
    stage: tuple[Any, Any] | None = None  # arrays that stand in for the caller's, if these are short
    fills: bool = False  # the receive buffer is read, too
    bound: dict[tuple[int, int], Executable] = field(default_factory=dict)
    eager: Executable | None = None  # bound to the stage
    idle: list[tuple[Executable, Any, Any]] = field(default_factory=list)  # of tasks, each with a stage of its own
    last: tuple[int, int] = 0, 0  # where the buffers were for which there was no executable
    running: Executable | None = None
    allocates: tuple[tuple[int, ...], np.dtype] | None = None  # shape and dtype of a receive buffer that is not given
    answer: Callable[[Any], Any] | None = None  # the result, where it is not the receive buffer as it was given

    def run(self, send: Any, recv: Any) -> bool:
        """Run it on these buffers; False if somebody has to take a closer look at them."""
        if self.gives:
            if not send.flags.c_contiguous:
                return False
            start = get_address(send) if self.on_host else address(send)
        else:
            start = 0
        if self.gets:
            flags = recv.flags
            if not (flags.carray if self.writes and self.on_host else flags.c_contiguous):
                return False
            places = start, get_address(recv) if self.on_host else address(recv)
        else:
            places = start, 0
        executable = self.bound.get(places)
        if executable is None:
            return self._run_elsewhere(send, recv, places)
        self.running = executable
        executable.run()
        return True

    def _run_elsewhere(self, send: Any, recv: Any, places: tuple[int, int]) -> bool:
        """Run it on buffers for which there is no executable."""
        if not self.on_host or (self.gives and self.gets and _overlap(send, recv, *places)):
            return False
        if self.eager is None or places == self.last:
            buffers = self.like.at(send if self.gives else None, recv if self.gets else None)
            executable = self.running = self.channel.bind(self.program, buffers, self.operation)
            self.keep(executable, places)
            executable.run()
            return True
        self.last, self.running = places, self.eager
        assert self.stage
        inside, outside = self.stage
        if self.gives:
            copyto(inside, send)
        if self.fills:
            copyto(outside, recv)
        try:
            self.eager.run()
        finally:  # of what a signal handler raised, too
            if self.writes:
                copyto(recv, outside)
        return True

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """What is to be run on these buffers by a task; None if somebody has to take a closer look at them."""
        if not self.fits(send, recv):
            return None
        tag = 0 if is_native(self.program) else self.channel.next_tag()
        return self._staged_parts(send, recv, tag) if self.stage else self._bound_parts(send, recv, tag)

    def fits(self, send: Any, recv: Any) -> bool:
        """Whether these buffers are as they must be."""
        if self.gives and not send.flags.c_contiguous:
            return False
        if self.gets and not (recv.flags.carray if self.writes else recv.flags.c_contiguous):
            return False
        return not (self.gives and self.gets and _overlap(send, recv, get_address(send), get_address(recv)))

    def _bound_parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        buffers = self.like.at(send if self.gives else None, recv if self.gets else None)
        yield freed_at_its_end(self.channel.bind(self.program, buffers, self.operation, tag))
        del send, recv  # they are needed up to here

    def _staged_parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        executable, inside, outside = stage = self.idle.pop() if self.idle else self._new_stage(send, recv)
        executable.tag[:] = (tag,)
        if self.gives:
            copyto(inside, send)
        if self.fills:
            copyto(outside, recv)
        yield executable
        if self.writes:
            copyto(recv, outside)
        if len(self.idle) < MOST_IDLE:
            self.idle.append(stage)

    def _new_stage(self, send: Any, recv: Any) -> tuple[Executable, Any, Any]:
        inside = np.empty_like(send) if self.gives else None
        outside = np.empty_like(recv) if self.gets else None
        buffers = self.like.at(inside, outside)
        return self.channel.bind_for_any_tag(self.program, buffers, self.operation), inside, outside

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Find it again for buffers in these places."""
        self.bound[places] = executable
        executable.known.append((self, places))

    def forget(self, places: tuple[int, int]) -> None:
        """The executable for buffers in these places is freed."""
        if self.bound.pop(places, None) is self.eager:
            self.eager = None


def make_plan(
    name: str,
    channel: Channel,
    program: Program,
    executable: Executable | None,
    buffers: CheckedBuffers,
    operation: Operation | None,
    op: object,
    send: Any,
    recv: Any,
) -> Plan | None:
    """A plan for calls like this one; None if it would be of no use for other addresses.

    `executable` is that of a blocking call; `send` and `recv` are the caller's arrays, or what stands for none.
    """
    gives, gets = buffers.send is not None, buffers.recv is not None
    if not (_is_whole(send, buffers.send) and _is_whole(recv, buffers.recv)):
        return None
    if buffers.in_place and gets and not buffers.read_only and is_array(send) and is_array(recv):
        return None  # one array twice
    on_host = buffers.memory is HOST
    if not (on_host or executable):
        return None
    like = buffers.at(None, None)
    plan = Plan(name, channel, program, like, operation, op, gives, gets, gets and not buffers.read_only, on_host)
    plan.fills = gets and (buffers.in_place or buffers.has_gaps())
    if executable:
        plan.keep(executable, (address(buffers.send), address(buffers.recv)))
    if on_host and max(send.nbytes if gives else 0, recv.nbytes if gets else 0) <= EAGER:
        inside, outside = channel.stage()
        plan.stage = _like(inside, send) if gives else None, _like(outside, recv) if gets else None
        if executable:
            plan.eager = channel.bind(program, buffers.at(*plan.stage), operation)
            plan.keep(plan.eager, (address(plan.stage[0]), address(plan.stage[1])))
    return plan


def _like(area: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The beginning of this memory as such an array."""
    return area[: array.nbytes].view(array.dtype).reshape(array.shape)


def _is_whole(array: Any, used: Any) -> bool:
    """Whether all of the caller's array is used, and nothing else."""
    return used is None or (is_array(array) and address(array) == address(used) and array.nbytes == used.nbytes)


def _overlap(send: Any, recv: Any, start: int, other: int) -> bool:
    return bool(start < other + recv.nbytes and other < start + send.nbytes)
