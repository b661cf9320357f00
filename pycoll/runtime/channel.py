"""A channel: the state that pycoll keeps for one communicator.

It has a private duplicate of the communicator, for all messages, and facts that the ranks know about each other.  It
also has the algorithms chosen for the communicator, and the executables of the last calls.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST, Memory
from ..arguments.ops import Operation
from ..base import hooks
from ..base.errors import CollectiveInterrupted, RankFailed
from ..compiler.program import BLOCKING, Program
from ..selection.choices import Choices
from ..selection.select import CommFacts
from ..selection.tuning_file import Tuned
from .bind import bind, lowered
from .executable import Executable, freed_at_its_end
from .failures import rank_failed
from .misses import Misses
from .plan import Plan
from .registered import NotEnoughMemory, Registered
from .slots import new_front

if TYPE_CHECKING:
    from .gpu.ipc import Opened
    from .meeting import Meeting

KEPT = 256  # executables kept for each communicator
KEPT_REQUESTS = 8192  # the most requests that they have together
KEPT_SCRATCH = 1 << 28  # the most bytes of scratch that they have together
SMALL = 1 << 16  # bytes of scratch that are never freed


class Channel:
    """The state that pycoll keeps for one communicator."""

    def __init__(self, private: MPI.Intracomm, facts: CommFacts, choices: Choices, tuned: Tuned | None) -> None:
        self.comm = private
        self.facts, self.tuned = facts, tuned
        self.choices = choices
        choices.changed = self.forget_plans
        self.plans: dict[Any, Plan] = {}  # by the kinds of calls
        self.slots: core.Slots | None = None  # if the ranks share a host and the compiled core
        self.front = new_front(None, private)  # the plans of the compiled core
        self.broken: RuntimeError | None = None  # why it is unusable
        self.place = 0  # its position in the roll call
        self.registered = Registered(private, facts.on_host_of(private.rank))
        self.misses: dict[str, Misses] = defaultdict(Misses)  # by primitive
        self._meetings: dict[int, Meeting] = {}  # of blocking collectives, by the width of their tables
        # of completed collectives, for the next ones in flight
        self._idle: dict[int, list[Meeting]] = defaultdict(list)
        self._executables: dict[tuple[Any, ...], Executable] = {}  # the most recently used one is last
        self._requests = 0  # of all executables
        self._epoch = hooks.epoch
        self._small = HOST.allocate(SMALL)
        self._stages: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by their size in bytes
        self._scratch: weakref.WeakValueDictionary[tuple[Hashable, int], Any] = weakref.WeakValueDictionary()
        self._last_scratch: Any = None  # kept for the next call
        self.last_tag = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)  # of no collective
        self._tags = self.last_tag - 1 - BLOCKING
        self._started = 0

    @cached_property
    def opened(self) -> Opened:
        """The GPU memory of the other ranks of this host that this rank has opened."""
        from .gpu.ipc import Opened

        return Opened()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.facts.size

    @property
    def nonblocking(self) -> bool:
        """Whether nonblocking or persistent collectives were called on it; the same on all ranks."""
        return self._started > 0

    @property
    def registers(self) -> bool:
        """Whether buffers may be registered; the same on all ranks."""
        return self.registered.live > 0 if self.facts.host_count > 1 else bool(self.registered.areas)

    def check_usable(self) -> None:
        """Raise the error that made the communicator unusable, if there was one."""
        if self.broken:
            if isinstance(self.broken, RankFailed):
                raise RankFailed(f"this communicator cannot be used any more: {self.broken}", self.broken.ranks)
            if self.comm.Is_revoked():
                raise MPI.Exception(MPI.ERR_REVOKED)
            raise type(self.broken)(f"this communicator cannot be used any more: {self.broken}")

    def next_tag(self) -> int:
        """The tag of the next nonblocking collective or comparison; all ranks take it in the same order."""
        if not self._started:  # from now on, the native collective may no longer be chosen
            self.forget_plans()
        self._started += 1
        return BLOCKING + 1 + (self._started - 1) % self._tags

    def bind(
        self, program: Program, buffers: CheckedBuffers, operation: Operation | None, tag: int | None = None
    ) -> Executable:
        """Bind a program to these buffers.

        Executables of blocking calls share scratch, and are kept.  With `tag`, an executable has its own scratch, so
        that others can run at the same time.
        """
        program, memory = lowered(program, buffers, operation), buffers.memory
        addresses = (address(buffers.send), address(buffers.recv))
        if tag is not None:
            return bind(self.comm, program, buffers, addresses, operation, memory.allocate(program.scratch), tag)
        self.renew()
        if operation and not operation.predefined:  # its handle may be freed and reused, so nothing is kept
            scratch = self.shared_scratch(memory, program.scratch)
            return freed_at_its_end(bind(self.comm, program, buffers, addresses, operation, scratch, BLOCKING))
        return self.bind_for_long(program, buffers, addresses, operation)

    def bind_for_long(
        self,
        program: Program,
        buffers: CheckedBuffers,
        addresses: tuple[int, int],
        operation: Operation | None,
        peers: Sequence[int] = (),
    ) -> Executable:
        """Bind a `lowered` program of blocking calls to addresses; the channel keeps the executable.

        `peers` are the addresses of registered buffers of other ranks.
        """
        memory = buffers.memory
        key = (program, memory.scratch, *addresses, *peers, buffers.dtype, operation and operation.name)
        executable = self._executables.pop(key, None)
        if executable is None:
            scratch = self.shared_scratch(memory, program.scratch)
            executable = bind(self.comm, program, buffers, addresses, operation, scratch, BLOCKING, peers)
            self._make_room(len(executable.requests))
            self._requests += len(executable.requests)
        self._executables[key] = executable
        return executable

    def bind_anew(
        self,
        program: Program,
        buffers: CheckedBuffers,
        addresses: tuple[int, int],
        operation: Operation | None,
        in_flight: bool = False,
    ) -> Executable:
        """Bind a `lowered` program to addresses; the channel does not keep the executable.

        It is for a single blocking run on buffers in host memory.  With `in_flight`, it is for many runs, with its own
        scratch and a tag that is set at each run.  Only the native collective needs arrays in `buffers`.
        """
        if in_flight:
            scratch = buffers.memory.allocate(program.scratch)
        else:
            scratch = self._last_scratch = self.shared_scratch(HOST, program.scratch)
        return bind(self.comm, program, buffers, addresses, operation, scratch, None if in_flight else BLOCKING)

    def bind_shared(
        self,
        programs: Sequence[Program],
        buffers: CheckedBuffers,
        addresses: tuple[int, int],
        peers: Sequence[int],
        operation: Operation | None,
        tag: int | None,
    ) -> list[Executable]:
        """Bind programs that use the same scratch to own buffers and to those of other ranks.

        On GPU memory, those of blocking calls are kept, and those with a `tag` can run again with other tags.
        """
        memory = buffers.memory
        if tag is None and memory is not HOST:
            self.renew()
            return [self.bind_for_long(program, buffers, addresses, operation, peers) for program in programs]
        nbytes = max(program.scratch for program in programs)
        if memory is not HOST:
            scratch = memory.allocate(nbytes)
            return [
                bind(self.comm, program, buffers, addresses, operation, scratch, None, peers) for program in programs
            ]
        scratch = memory.allocate(nbytes) if tag else self.shared_scratch(memory, nbytes)
        return [
            freed_at_its_end(bind(self.comm, program, buffers, addresses, operation, scratch, tag or BLOCKING, peers))
            for program in programs
        ]

    def meeting(self, width: int, tag: int | None) -> Meeting:
        """A meeting for a collective on registered buffers; without `tag`, for a blocking one."""
        from .meeting import BoardMeeting, MessageMeeting

        if tag is None:
            if width not in self._meetings:
                # with GPU memory, rows are longer than those of the board, and two meetings may be open at a time
                board = None if self.facts.cuda_ipc else self.registered.board
                self._meetings[width] = (
                    BoardMeeting(self, width, board) if board else MessageMeeting(self, width, in_flight=False)
                )
            return self._meetings[width]
        idle = self._idle[width]
        meeting = idle.pop() if idle else MessageMeeting(self, width, in_flight=True)
        meeting.opening.tag[:] = meeting.closing.tag[:] = (tag,)
        return meeting

    def end_meeting(self, meeting: Meeting, tag: int | None) -> None:
        """Keep the meeting of a complete collective for later ones."""
        if tag is not None and meeting.epoch == hooks.epoch:
            self._idle[meeting.width].append(meeting)

    def shared_scratch(self, memory: Memory, nbytes: int) -> Any:
        """Scratch memory, in powers of two; it exists as long as an executable uses it."""
        if memory is HOST and nbytes <= SMALL:
            return self._small
        nbytes = 1 << (nbytes - 1).bit_length() if nbytes else 0
        key = (memory.scratch, nbytes)
        scratch = self._scratch.get(key)
        if scratch is None:
            while self._executables and sum(size for _, size in self._scratch) + nbytes > KEPT_SCRATCH:
                self._drop(next(iter(self._executables)))
            self._scratch[key] = scratch = memory.allocate(nbytes)
        return scratch

    def _make_room(self, requests: int) -> None:
        """Drop the least recently used executables, to make room for one with `requests` requests."""
        while self._executables and (
            len(self._executables) >= KEPT or self._requests + requests > max(KEPT_REQUESTS, requests)
        ):
            self._drop(next(iter(self._executables)))

    def plan(self, key: Any) -> Plan | None:
        """The plan for calls of one kind, or None."""
        try:
            return self.plans.get(key)
        except TypeError:  # an argument of a wrong type, which cannot be hashed
            return None

    def remember(self, key: tuple[Any, ...], plan: Plan) -> None:
        """Keep a plan for later calls of the kind `key`."""
        if self._epoch == hooks.epoch:
            while len(self.plans) >= KEPT:
                del self.plans[next(iter(self.plans))]
            self.plans[key] = plan

    def forget_plans(self) -> None:
        """Drop all plans, so that the arguments of later calls are checked again."""
        self.plans.clear()
        self.front.forget()
        for executable in list(self._executables.values()):
            executable.known.clear()

    def register(self, nbytes: int) -> tuple[Any, int]:
        """Allocate registered memory, and return it with an offset in it; all ranks call this together."""
        with self._abandoned_on_failure("allocating registered memory"):
            memory = self.registered.allocate(nbytes)
        self.forget_plans()  # if this is the first registered memory, they do not look for it
        self.misses.clear()
        return memory

    def unregister(self, address: int) -> None:
        """Free registered memory; all ranks call this together."""
        with self._abandoned_on_failure("freeing registered memory"):
            self.registered.give_back(address)
        self.forget_plans()

    @contextlib.contextmanager
    def _abandoned_on_failure(self, what: str) -> Iterator[None]:
        """Make the communicator unusable if the block fails on this rank only, so that the accounts of ranks differ."""
        try:
            yield
        except (ValueError, NotEnoughMemory):  # on all ranks
            raise
        except BaseException as error:
            failure = self.interrupted(what, error)
            if failure is error:
                raise
            raise failure from error

    def stage(self, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        """Two areas of `nbytes` bytes, through which short send and receive buffers are copied."""
        if nbytes not in self._stages:
            self._stages[nbytes] = HOST.allocate(nbytes), HOST.allocate(nbytes)
        return self._stages[nbytes]

    def _drop(self, key: tuple[Any, ...]) -> None:
        executable = self._executables.pop(key)
        for plan, places in executable.known:
            plan.forget(places)
        self._requests -= len(executable.requests)
        executable.free()

    def renew(self) -> None:
        """Free all executables if a new epoch has begun."""
        if self._epoch != hooks.epoch:
            self.clear()

    def clear(self) -> None:
        """Free all executables."""
        self._epoch = hooks.epoch
        for key in list(self._executables):
            self._drop(key)
        for meeting in self._meetings.values():
            meeting.free()
        self._meetings.clear()
        self._idle.clear()

    def revoke(self) -> None:
        """Revoke the private duplicate: waiting calls on other ranks, and later calls on this rank, raise an error."""
        self.comm.Revoke()
        self.broken = RuntimeError("it was revoked")
        self.forget_plans()

    def interrupted(self, what: str, error: BaseException, *kept: object) -> BaseException:
        """Make the communicator unusable because `what` ended early, and return the error to raise.

        If processes have died, that is RankFailed, and the communicator is revoked, so that no other rank waits for a
        rank that has left its collective.  For `kept`, see `abandon`.
        """
        if failure := rank_failed(self.comm, what, error):
            self.comm.Revoke()
            self.abandon(failure, *kept)
            return failure
        self.abandon(CollectiveInterrupted(f"{what} was interrupted by {error!r}"), *kept)
        return error

    def abandon(self, reason: RuntimeError, *kept: object) -> None:
        """Make the communicator unusable, because messages may still be pending.

        `kept` are objects whose memory MPI may still read or write; they are never freed.
        """
        if self.broken is None:
            self.broken = reason
        self.forget_plans()
        _abandoned.append((self, *kept))

    def free(self) -> None:
        """Free all requests and the private duplicate, unless messages are pending that may never complete."""
        if not any(channel is self for channel, *_ in _abandoned):
            self.clear()
            self.forget_plans()  # plans refer to the channel
            if "opened" in vars(self):
                self.opened.close()
            self.comm.Free()


_abandoned: list[tuple[Any, ...]] = []
