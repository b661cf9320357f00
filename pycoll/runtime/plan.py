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
from ..arguments.memory import address, overlap
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..arguments.signature import is_array
from ..compiler.program import Program, is_native
from .executable import Executable, freed_at_its_end, lowered

if TYPE_CHECKING:
    from .channel import Channel

MOST_IDLE = 16  # executables of tasks that are kept in each plan
MOST_SEEN = 128  # addresses that are remembered in each plan
EAGER = 1 << 14  # bytes of a buffer up to which copying costs less than making an executable

copyto = np.copyto


@dataclass
class Plan:
    """What is to be done for the calls of one kind: a program, and executables of it."""

    name: str  # for messages to people
    channel: Channel
    program: Program
    lowered: Program  # for the memory that the buffers lie in
    like: CheckedBuffers  # the buffers of such a call, without the arrays
    operation: Operation | None
    op: object  # the caller's, kept so that its id is not used again
    gives: bool  # the send buffer is read
    gets: bool  # the receive buffer is used
    writes: bool  # the receive buffer is written, by the host
    on_host: bool
    address: Callable[[Any], int]
    stage: tuple[Any, Any] | None = None  # arrays that stand in for the caller's, if these are short
    fills: bool = False  # the receive buffer is read, too
    bound: dict[tuple[int, int], Executable] = field(default_factory=dict)
    eager: Executable | None = None  # bound to the stage
    idle: list[tuple[Executable, Any, Any]] = field(default_factory=list)  # of tasks, each with a stage of its own
    seen: set[tuple[int, int]] = field(default_factory=set)  # where buffers were for which there was no executable
    running: Executable | None = None
    allocates: tuple[tuple[int, ...], np.dtype] | None = None  # shape and dtype of a receive buffer that is not given
    answer: Callable[[Any], Any] | None = None  # the result, where it is not the receive buffer as it was given

    def run(self, send: Any, recv: Any) -> bool:
        """Run it on these buffers; False if they take a closer look."""
        start = other = 0
        if self.gives:
            if not send.flags.c_contiguous:
                return False
            start = self.address(send)
        if self.gets:
            if not (recv.flags.carray if self.writes else recv.flags.c_contiguous):
                return False
            other = self.address(recv)
        executable = self.bound.get((start, other))
        if executable is None:
            return self._run_elsewhere(send, recv, (start, other))
        self.running = executable
        executable.run()
        return True

    def _run_elsewhere(self, send: Any, recv: Any, places: tuple[int, int]) -> bool:
        """Run it on buffers for which there is no executable; False if they take a closer look."""
        if not self.on_host or (self.gives and self.gets and overlap(places[0], send.nbytes, places[1], recv.nbytes)):
            return False
        if self.seen_before(places):
            executable = self.running = self.channel.bind(self.program, self.buffers(send, recv), self.operation)
            self.keep(executable, places)
            executable.run()
        elif self.stage:
            self._run_eagerly(*self.stage, send, recv)
        else:
            executable = self.running = self.channel.bind_once(self.lowered, self.buffers(send, recv), self.operation)
            try:
                executable.run()
            finally:
                if not executable.failed:
                    executable.free()
        return True

    def seen_before(self, places: tuple[int, int]) -> bool:
        """Whether buffers in these places are worth an executable of their own: they are not there for the first time.

        For short messages it saves little, so they must be the same in two calls running.
        """
        if places in self.seen:
            return True
        if self.stage or len(self.seen) == MOST_SEEN:
            self.seen.clear()
        self.seen.add(places)
        return False

    def _bound_to_stage(self) -> Executable:
        assert self.stage
        self.eager = self.channel.bind(self.program, self.like.at(*self.stage), self.operation)
        self.keep(self.eager, (address(self.stage[0]), address(self.stage[1])))
        return self.eager

    def buffers(self, send: Any, recv: Any) -> CheckedBuffers:
        """Such arrays as buffers."""
        return self.like.at(send if self.gives else None, recv if self.gets else None)

    def _run_eagerly(self, inside: Any, outside: Any, send: Any, recv: Any) -> None:
        """Run it on the stage, with copies of the arrays."""
        executable = self.running = self.eager or self._bound_to_stage()
        if self.gives:
            copyto(inside, send)
        if self.fills:
            copyto(outside, recv)
        try:
            executable.run()
        finally:  # after what a signal handler raised, too
            if self.writes:
                copyto(recv, outside)

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """What a task is to run on these buffers; None if they take a closer look."""
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
        if not (self.gives and self.gets):
            return True
        return not overlap(self.address(send), send.nbytes, self.address(recv), recv.nbytes)

    def _bound_parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        buffers = self.buffers(send, recv)
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
    buffers: CheckedBuffers,
    operation: Operation | None,
    op: object,
    send: Any,
    recv: Any,
) -> Plan | None:
    """A plan for calls like this one; None if it would be of no use for other addresses.

    `send` and `recv` are the caller's arrays, or what stands for none.
    """
    gives, gets = buffers.send is not None, buffers.recv is not None
    if not (_is_whole(send, buffers.send) and _is_whole(recv, buffers.recv)):
        return None
    if buffers.in_place and gets and not buffers.read_only and is_array(send) and is_array(recv):
        return None  # one array twice
    on_host = buffers.memory is HOST
    plan = Plan(
        *(name, channel, program, lowered(program, buffers, operation), buffers.at(None, None), operation, op),
        gives=gives,
        gets=gets,
        writes=gets and on_host and not buffers.read_only,
        on_host=on_host,
        address=MPI.Get_address if on_host else address,
    )
    plan.fills = gets and (buffers.in_place or buffers.has_gaps())
    if on_host and max(send.nbytes if gives else 0, recv.nbytes if gets else 0) <= EAGER:
        inside, outside = channel.stage()
        plan.stage = _like(inside, send) if gives else None, _like(outside, recv) if gets else None
    return plan


def _like(area: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The beginning of this memory as such an array."""
    return area[: array.nbytes].view(array.dtype).reshape(array.shape)


def _is_whole(array: Any, used: Any) -> bool:
    """Whether all of the caller's array is used, and nothing else."""
    return used is None or (is_array(array) and address(array) == address(used) and array.nbytes == used.nbytes)
