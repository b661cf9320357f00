"""A channel: the state that pycoll keeps for one communicator.

It has a private duplicate of the communicator, for all messages, and facts that the ranks know about each other.  It
also has the algorithms chosen for the communicator, and the plans of the last calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from itertools import chain, repeat
from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import HOST, Memory
from ..arguments.ops import Operation
from ..base import hooks, settings
from ..base.counters import count, counting
from ..base.errors import CollectiveInterrupted, MismatchError, RankFailed, with_hint
from ..base.numbers import ranks_have
from ..compiler.program import BLOCKING, Program, is_native
from ..selection.choices import Choices
from ..selection.select import CommFacts
from ..selection.tuning_file import Tuned
from . import core_runs
from .bind import bind
from .executable import Executable
from .failures import has_ended, rank_failed
from .host_memory import Part
from .recording import recorder
from .registered import NotEnoughMemory, Registered
from .topology import CommTopology

KEPT_SCRATCH = 1 << 26  # the most bytes of scratch that blocking calls share


class Channel:
    """The state that pycoll keeps for one communicator."""

    def __init__(self, private: MPI.Intracomm, facts: CommFacts, choices: Choices, tuned: Tuned | None) -> None:
        self.comm = private
        self.topology: CommTopology | None = None
        self.facts, self.tuned = facts, tuned
        self.choices = choices
        choices.changed = self.forget_plans
        self.slots: core.Slots | None = None  # if the ranks share a host and the compiled core
        self.mailboxes: core.Mailboxes | None = None  # if the compiled core runs programs with messages
        self.front: core.Front | core.NoFront = core.NoFront()  # the plans of the compiled core
        self.objects: Any = None  # its collectives of Python objects
        self.broken: RuntimeError | MismatchError | None = None  # why it is unusable
        self.part: Part | None = None  # of the memory of this host
        self.processes: dict[int, int] = {}  # of the ranks of this host that share memory
        self.reads_memory = False  # whether they can copy each other's memory
        self.roll_slot = 0  # its position in the roll call
        self.running = ""  # the name of the blocking call that runs, if it is known
        self.registered = Registered(private, facts.on_host_of(private.rank))
        self.epoch = hooks.epoch  # in which what is bound holds
        self._scratch: dict[Hashable, Any] = {}  # of blocking calls, by the kind of memory
        self.last_tag = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)  # of no collective
        # of nonblocking collectives, in the order in which all ranks take them
        self.tags = chain.from_iterable(repeat(range(BLOCKING + 1, self.last_tag)))
        self.nonblocking = False  # whether nonblocking or persistent collectives were called; the same on all ranks

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.facts.size

    @property
    def by_reference(self) -> bool:
        """Whether the reference executor runs calls in host memory."""
        return settings.EXECUTOR == "reference"

    @property
    def near(self) -> bool:
        """Whether all messages travel through memory that the ranks share; the same on all ranks."""
        return self.facts.host_count == 1 and self.mailboxes is not None and self.mailboxes.near

    @property
    def registers(self) -> bool:
        """Whether calls look for registered buffers; the same on all ranks."""
        if not (self.facts.core and self.facts.host_memory):
            return False
        return self.registered.live > 0 if self.facts.host_count > 1 else bool(self.registered.areas)

    def check_usable(self) -> None:
        """Raise the error that made the communicator unusable, if there was one."""
        if self.broken:
            if isinstance(self.broken, RankFailed):
                raise RankFailed(f"this communicator cannot be used any more: {self.broken}", self.broken.ranks)
            if self.comm != MPI.COMM_NULL and self.comm.Is_revoked():
                raise MPI.Exception(MPI.ERR_REVOKED)
            raise type(self.broken)(f"this communicator cannot be used any more: {self.broken}")

    def next_tag(self) -> int:
        """The tag of the next nonblocking collective or comparison; all ranks take it in the same order."""
        if not self.nonblocking:  # from now on, the native collective may no longer be chosen
            self.nonblocking = True
            self.forget_plans()
        return next(self.tags)

    def bind(
        self,
        program: Program,
        buffers: CheckedBuffers,
        operation: Operation | None,
        tag: int,
        peer_addresses: core.PeerAddresses | None = None,
    ) -> Executable:
        """Bind a `lowered` program to buffers; `peer_addresses` tell where the registered ones of other ranks are."""
        scratch = self.scratch(buffers.memory, program.scratch, tag)
        if buffers.memory is not HOST or is_native(program) or self.mailboxes is None:
            return bind(self.comm, program, buffers, operation, scratch, tag)
        code = core_runs.code_of(program, buffers.dtype, operation, self.size)
        run = core.Run(self.mailboxes, code, scratch, address(scratch), tag, peer_addresses)
        run.bind(address(buffers.send), address(buffers.recv))
        if counting():
            run.count_messages(count)
        return core_runs.Traced(self.comm, run, buffers.mean_size(self.size)) if recorder.current else run

    def scratch(self, memory: Memory, nbytes: int, tag: int) -> Any:
        """Scratch memory: of blocking calls, which run one at a time, always the same."""
        if tag != BLOCKING:
            return memory.allocate(nbytes)
        scratch = self._scratch.get(memory.scratch)
        if scratch is None or scratch.nbytes < nbytes:
            scratch = memory.allocate(1 << (nbytes - 1).bit_length() if nbytes > 1 else 1)
            if nbytes <= KEPT_SCRATCH:
                self._scratch[memory.scratch] = scratch
        return scratch

    def forget_plans(self) -> None:
        """Drop all plans, so that the arguments of later calls are checked again."""
        self.front.forget()

    def register(self, nbytes: int) -> tuple[Any, int]:
        """Allocate registered memory, and return it with an offset in it; all ranks call this together."""
        with self.abandoned_on_failure("allocating registered memory"):
            memory = self.registered.allocate(nbytes)
        self.forget_plans()  # if this is the first registered memory, they do not look for it
        return memory

    def unregister(self, address: int) -> None:
        """Free registered memory; all ranks call this together."""
        with self.abandoned_on_failure("freeing registered memory"):
            self.registered.give_back(address)
        self.forget_plans()

    @contextlib.contextmanager
    def abandoned_on_failure(self, what: str) -> Iterator[None]:
        """Make the communicator unusable if the block fails on this rank only: accounts would differ."""
        try:
            yield
        except (ValueError, NotEnoughMemory):  # on all ranks
            raise
        except BaseException as error:
            failure = self.interrupted(what, error)
            if failure is error:
                raise
            raise failure from error

    def failure_on_host(self, *ranks: int) -> RankFailed | None:
        """Make the communicator unusable if one of these ranks of this host, or any, has ended; return the error."""
        ended = [rank for rank in ranks or self.processes if rank in self.processes and has_ended(self.processes[rank])]
        if not ended:
            return None
        failure = RankFailed(f"a collective on rank {self.comm.rank}: {ranks_have(ended)} failed", ended)
        self.abandon(failure)
        return failure

    def stop_core(self) -> None:
        """Let no run of the compiled core wait for other ranks any more, and forget the plans, which refer to this."""
        for waiting in (self.slots, self.mailboxes):
            if waiting:
                waiting.failed = True
        self.forget_plans()

    def revoke(self) -> None:
        """Revoke the private duplicate: waiting calls on other ranks, and later calls on this rank, raise an error."""
        self.comm.Revoke()
        self.broken = RuntimeError("it was revoked")
        self.stop_core()

    def interrupted(self, what: str, error: BaseException, *kept: object) -> BaseException:
        """Make the communicator unusable because `what` ended early, and return the error to raise.

        If processes have died, that is RankFailed, and the communicator is revoked, so that no other rank waits for a
        rank that has left its collective.  For `kept`, see `abandon`.
        """
        if failure := rank_failed(self.comm, what, error):
            self.comm.Revoke()
            self.abandon(failure, *kept)
            return failure
        error = with_hint(error)
        self.abandon(CollectiveInterrupted(f"{what} was interrupted by {error!r}"), *kept)
        return error

    def abandon(self, reason: RuntimeError | MismatchError, *kept: object) -> None:
        """Make the communicator unusable, because messages may still be pending.

        `kept` are objects whose memory MPI may still read or write; they are never freed.
        """
        if self.broken is None:
            self.broken = reason
        self.stop_core()
        _abandoned.append((self, *kept))

    def free(self) -> None:
        """Free all requests and the private duplicate, unless messages are pending that may never complete."""
        if not any(channel is self for channel, *_ in _abandoned):
            self.stop_core()
            self.objects = None
            self.comm.Free()
            self.broken = self.broken or RuntimeError("it was freed")  # persistent requests may be left
            if self.part:
                self.part.leave()


_abandoned: list[tuple[Any, ...]] = []
