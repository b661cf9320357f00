"""The slots of a communicator: memory through which the compiled core runs its collectives inside a host."""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.arrays import IN_PLACE
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.ops import Operation, kernels, real_dtype
from ..arguments.signature import DATATYPES
from ..base import settings
from ..base.errors import CollectiveTimeout, RankFailed
from ..compiler.blocks import ProgramKey
from ..compiler.program import BLOCKING, EMPTY, READY, Collective, CopyBytes, Post, Program, Step
from ..schedule.registry import PRIMITIVES
from ..selection.select import CommFacts
from . import native
from .executable import Executable
from .failures import TOLERANT
from .plan import Plan
from .progress import background, progress, tasks, until
from .recording import recorder

if TYPE_CHECKING:
    from .channel import Channel

NAP = 1_000_000  # nanoseconds that a rank sleeps at a time
SHORT_NAP = 20_000  # the same, while collectives are in flight, which progress between two naps


METHODS = [native.function_name(name, False) for name in PRIMITIVES] + ["Reduce_scatter"]
"""The methods of a communicator, by the numbers of the front: those of the primitives, then that with counts."""


class NoFront:
    """Stands for the front where nothing was compiled: each call takes the careful path."""

    def run(self, *arguments: Any) -> bool:
        """Return False: there is no plan."""
        return False

    def start(self, *arguments: Any) -> None:
        """Return None: there is no plan."""

    def remember(self, *arguments: Any) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


def new_front(slots: core.Slots | None, comm: MPI.Intracomm) -> core.Front | NoFront:
    """The front of a communicator, without plans."""
    if core.problem:
        return NoFront()
    core.set_constants(IN_PLACE, DATATYPES)
    uses = [core.uses_of(PRIMITIVES[name]) for name in (*PRIMITIVES, "reduce_scatter")]
    natives = [getattr(comm, name) for name in (*METHODS, *(f"I{name.lower()}" for name in METHODS))]
    return core.Front(slots, comm.rank, comm.size, (tasks, background), uses, natives)


def is_usable() -> bool:
    """Whether this rank can use slots."""
    return not why_unusable()


def why_unusable() -> str:
    """Why this rank cannot use slots; empty if it can."""
    if settings.EXECUTOR not in ("", "core"):
        return f"PYCOLL_EXECUTOR is {settings.EXECUTOR}"
    if core.problem:
        return core.problem
    if not settings.SHARED_MEMORY:
        return "PYCOLL_SHARED_MEMORY is 0"
    if not hasattr(os, "memfd_create"):
        return "the system has no memfd_create"
    return "ranks may fail" if TOLERANT else ""


def open_slots(channel: Channel, facts: CommFacts) -> core.Slots | None:
    """Open the slots of a communicator whose ranks share a host; None if a rank cannot.  All ranks call this together.

    The memory has no name, so that nothing is left behind: rank 0 creates it, and the others open its descriptor.  A
    random number in it shows that they have found the right one, although they may be in containers.
    """
    comm = channel.comm
    if comm.size == 1 or facts.host_count > 1:
        return None
    nbytes = comm.size * (0 if core.problem else core.AREA_SIZE)
    token, usable = int.from_bytes(os.urandom(7), "little"), is_usable()
    descriptor = _created(nbytes, token) if usable and comm.rank == 0 else -1
    try:
        found = _gathered(comm, [usable and (comm.rank > 0 or descriptor >= 0), os.getpid(), descriptor, token])
        memory = _opened(found[0].tolist(), nbytes) if found[:, 0].all() else None
        opened = _gathered(comm, [memory is not None])[:, 0].all()
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    if not opened or memory is None:
        return None
    waiting = _Waiting(channel, found[:, 1].tolist())
    return core.Slots(memory, comm.rank, facts.crowded, waiting.look, waiting.give_up)


def _created(nbytes: int, token: int) -> int:
    """A descriptor of new memory that has no name; -1 if it cannot be created."""
    descriptor = -1
    try:
        descriptor = os.memfd_create("pycoll", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, nbytes)
        os.pwrite(descriptor, token.to_bytes(8, "little"), core.TOKEN_AT)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        return -1
    return descriptor


def _gathered(comm: MPI.Intracomm, mine: list[int]) -> np.ndarray:
    table = np.empty((comm.size, len(mine)), np.int64)
    until(comm.Iallgather(np.array(mine, np.int64), table).Test, "opening the memory that the ranks of a host share")
    return table


def _opened(found: list[int], nbytes: int) -> mmap.mmap | None:
    _, process, descriptor, token = found
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another container, or another user
        return None
    try:
        if os.fstat(opened).st_size != nbytes or os.pread(opened, 8, core.TOKEN_AT) != token.to_bytes(8, "little"):
            return None
        return mmap.mmap(opened, nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)


class _Waiting:
    """What a rank does while it waits for another one in shared memory, between two naps."""

    def __init__(self, channel: Channel, processes: list[int]) -> None:
        self._channel, self._processes = weakref.ref(channel), processes
        self._since = 0.0

    def look(self, rank: int, first: bool) -> int:
        """Let messages and other collectives progress; raise an error if the awaited rank will not come."""
        channel, now = self._channel(), time.monotonic()
        assert channel and channel.slots
        self._since = now if first else self._since
        progress()
        channel.comm.Iprobe(rank)  # the other rank may wait for a message of this one, which MPI sends meanwhile
        if settings.TIMEOUT and now > self._since + settings.TIMEOUT:
            failure: RuntimeError = CollectiveTimeout(
                f"a collective on rank {channel.comm.rank} of {channel.size} did not finish within its timeout of "
                f"{settings.TIMEOUT:g} s: it is waiting for rank {rank}"
            )
        elif _has_ended(self._processes[rank]):
            failure = RankFailed(f"a collective on rank {channel.comm.rank}: rank {rank} has failed", [rank])
        else:
            return SHORT_NAP if tasks else NAP
        channel.slots.failed = True
        channel.abandon(failure)
        raise failure

    def give_up(self, rank: int, error: BaseException) -> None:
        """Make the communicator unusable, because a run ends early."""
        if channel := self._channel():
            channel.interrupted(f"a collective that waits for rank {rank}", error)


def _has_ended(process: int) -> bool:
    """Whether a process of this host has ended; it may still be waiting for its parent."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def serves(channel: Channel, primitive: str, dtype: np.dtype, operation: Operation | None) -> bool:
    """Whether blocking calls without a named algorithm can run in the slots; the same on all ranks."""
    facts = channel.facts
    usable = channel.slots is not None and facts.host_count == 1 and facts.host_memory
    usable = usable and PRIMITIVES[primitive].lengths_known
    return usable and (operation is None or (operation.predefined and _combines(operation, dtype)))


def _combines(operation: Operation, dtype: np.dtype) -> bool:
    """Whether NumPy has a loop for the operation, which gives the same bits wherever the operands are."""
    combine: Any = operation.combine
    product = combine is np.multiply and dtype.kind == "c"  # its bits depend on the addresses of the operands
    if product or not isinstance(combine, np.ufunc) or (combine, dtype) in kernels:
        return False
    return core.has_loop(combine, dtype) and (not operation.mean or core.has_loop(np.true_divide, real_dtype(dtype)))


@lru_cache(maxsize=512)
def _assembled(key: ProgramKey, dtype: np.dtype, operation: Operation | None) -> core.Program:
    """The program of this rank for the machine."""
    from ..compiler.slots import slot_program

    mean = bool(operation and operation.mean)
    turns, piece, kind = slot_program(key, mean)
    made = {id(turn): core.Turn(list(turn)) for turn in turns}
    divisor = real_dtype(dtype).type(key.size) if mean else None
    ufunc: Any = operation.combine if operation else None
    return core.Program([made[id(turn)] for turn in turns], piece, kind, ufunc, dtype, divisor)


def assembled(key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> core.Program:
    """The program of this rank for the machine, of a call that `serves` accepts."""
    return _assembled(key._replace(longest=1, eager=(), pieces=1), buffers.dtype, operation)


def shown(key: ProgramKey) -> Program:
    """The program that stands for a collective in slots; the trace of a rank that waits has its first step."""
    step = Collective(key.algorithm.primitive.name, key.root, "blocking", None, None)
    return Program([Post(READY), step], [], 0, f"{step.primitive}.slots")


def bind(channel: Channel, program: core.Program, buffers: CheckedBuffers, key: ProgramKey) -> Executable:
    """The executable that runs a program on these buffers; arrays that are not aligned are copied."""
    assert channel.slots
    send, recv = (
        array if array is None or array.flags.aligned else array.copy() for array in (buffers.send, buffers.recv)
    )
    steps: list[Step] = shown(key).steps
    calls: list[Callable[[], object]] = [int, partial(channel.slots, program, address(send), address(recv))]
    if buffers.recv is not None and recv is not buffers.recv:
        steps = [*steps, CopyBytes(EMPTY, EMPTY)]
        calls.append(partial(buffers.recv.__setitem__, ..., recv))
    executable = Executable(replace(shown(key), steps=steps), calls, [], (send, recv))
    if recorder.current:
        from .recording.steps import Tracer

        nbytes = buffers.mean_size(channel.size)
        executable.record(Tracer(recorder.current, channel.comm, executable.program, nbytes, [BLOCKING]))
    return executable


@dataclass(kw_only=True)
class SlotsPlan(Plan):
    """A plan for calls that run in slots."""

    turns: core.Program

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        if not self._fits(send, recv) or (self.reads_send and not send.flags.aligned):
            return False
        assert self.channel.slots
        self.channel.slots(self.turns, *self.addresses(send, recv))
        return True

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        raise RuntimeError("only blocking calls run in slots")

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Do nothing: nothing is bound to addresses."""

    def forget(self, key: Any) -> None:
        """Do nothing."""
