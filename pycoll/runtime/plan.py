"""Plans: the common part of calls of one kind, which is everything except the addresses of the buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments.memory import address, apart
from ..arguments.memory_kinds import HOST
from ..arguments.signature import is_array
from .executable import Executable
from .interruptions import interruptions_delayed

if TYPE_CHECKING:
    from .dispatch import Prepared

MOST_IDLE = 16  # the most executables of collectives in flight that each plan keeps
MOST_SCRATCH = 1 << 16  # the most bytes of scratch that each of them may have


@dataclass(eq=False, repr=False)
class Plan:
    """The program for calls of one kind."""

    prepared: Prepared  # a call of this kind, without its arrays
    op: object  # of the caller; kept so that its id is not reused
    used: tuple[int, int]  # the bytes of the two buffers from their beginning; the arrays may be longer
    quick: Callable[..., object] | None  # see `Prepared.quick`
    reads_send: bool
    uses_recv: bool
    writes_recv: bool
    allocates: tuple[tuple[int, ...], np.dtype] | None = None  # shape and dtype of a receive buffer to be allocated
    answer: Callable[[Any], Any] | None = None  # makes the result, if it is not the receive buffer that was passed
    idle: list[Executable] = field(default_factory=list)  # of collectives in flight that are complete

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        if not self._fits(send, recv):
            return False
        if self.quick is None:
            with interruptions_delayed():
                self.prepared.on(*self._buffers(send, recv)).run()
            return True
        self.quick(address(send) if self.reads_send else 0, address(recv) if self.uses_recv else 0, send, recv)
        return True

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """The parts of a collective in flight on these buffers; None if they need a full check."""
        if not self._fits(send, recv):
            return None
        prepared = self.prepared.on(*self._buffers(send, recv))
        return self._reused(prepared) if prepared.movable else prepared.body(prepared.executable)

    def _reused(self, prepared: Prepared) -> Iterator[Executable]:
        """The only part: an executable of an earlier call of this kind, on other buffers."""
        executable = self.idle.pop() if self.idle else None
        if executable is None:
            executable = prepared.executable()
        else:
            prepared.move(executable)
        yield executable
        if len(self.idle) < MOST_IDLE and executable.program.scratch <= MOST_SCRATCH:
            self.idle.append(executable)

    def _fits(self, send: Any, recv: Any) -> bool:
        """Whether these buffers are contiguous, aligned, writeable where necessary, and do not overlap."""
        if self.reads_send and not (send.flags.c_contiguous and send.flags.aligned):
            return False
        if self.uses_recv and not (recv.flags.carray if self.writes_recv else recv.flags.c_contiguous):
            return False
        return not (self.reads_send and self.uses_recv) or apart(send, recv)

    def _buffers(self, send: Any, recv: Any) -> tuple[Any, Any]:
        given, got = self.used
        return _beginning(send, given) if self.reads_send else None, _beginning(recv, got) if self.uses_recv else None


def make_plan(prepared: Prepared, op: object, send: Any, recv: Any) -> Plan | None:
    """A plan for calls like this one, on host memory; None if it could not be used with other addresses.

    `send` and `recv` are the arrays of the caller, or placeholders.
    """
    buffers = prepared.buffers
    gives, gets = buffers.send is not None, buffers.recv is not None
    if buffers.memory is not HOST or not (_is_begun(send, buffers.send) and _is_begun(recv, buffers.recv)):
        return None
    if buffers.in_place and gets and not buffers.read_only and is_array(send) and is_array(recv):
        return None  # the same array twice
    used = [0 if array is None else int(array.nbytes) for array in (buffers.send, buffers.recv)]
    like = replace(prepared, buffers=buffers.at(None, None))
    writes = gets and not buffers.read_only
    return Plan(like, op, (used[0], used[1]), prepared.quick, gives, gets, writes)


def _beginning(array: Any, nbytes: int) -> Any:
    """The beginning of a contiguous array, in bytes if it is not the whole array."""
    return array if array.nbytes == nbytes else array.reshape(-1).view(np.uint8)[:nbytes]


def _is_begun(array: Any, used: Any) -> bool:
    """Whether the part of the array of the caller that is used starts at its beginning."""
    return used is None or (is_array(array) and address(array) == address(used) and array.nbytes >= used.nbytes)
