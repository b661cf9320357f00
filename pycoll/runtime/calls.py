"""A call of a collective: as its caller passed it, and after its arguments have been checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers, check_buffers
from ..arguments.memory_kinds import HOST
from ..arguments.ops import Operation
from ..base import settings
from ..base.errors import MismatchError
from ..compiler.layout import COUNT_BYTES, layout
from ..compiler.program import BLOCKING, Program
from ..compiler.program_key import ProgramKey
from ..compiler.programs import compiled
from ..schedule.registry import NATIVE, Primitive
from . import native, slots
from .bind import lowered
from .channel import Channel
from .executable import Executable, run_all
from .recording import recorder
from .requests import Request
from .task import CoreTask, Task

if TYPE_CHECKING:
    from .registered_calls import RegisteredCall

# (primitive, sendbuf, recvbuf, rank, size, root, recvcounts) -> CheckedBuffers
Reader = Callable[[Primitive, Any, Any, int, int, int, Any], CheckedBuffers]


class Call(NamedTuple):
    """The arguments of one call of a collective, as the caller passed them.

    `read` checks the buffers: `check_buffers` for arrays, `pycoll.arguments.mpi_arguments` for the forms of mpi4py.
    `form` is "blocking", "nonblocking" or "persistent".
    """

    primitive: str
    comm: MPI.Comm
    sendbuf: Any = None
    recvbuf: Any = None
    op: Any = None
    root: int = 0
    algorithm: str | None = None
    recvcounts: Any = None
    read: Reader = check_buffers
    form: str = "blocking"


@dataclass(eq=False, repr=False)
class Binder:
    """Binds the parts of one collective to their buffers.

    Parts of calls in flight have their own tag, so that other collectives can run at the same time.
    """

    channel: Channel
    form: str
    _tag: int | None = None

    def comparison(self, program: Program, buffers: CheckedBuffers) -> Executable:
        """Bind a part of the comparison of arguments.  It has a tag in all forms, so that different forms meet."""
        self._tag = self._tag or self.channel.next_tag()
        return self.channel.bind(program, buffers, None, self._tag)

    def tag(self) -> int:
        """The tag of all parts."""
        if self.form == "blocking":
            return BLOCKING
        self._tag = self._tag or self.channel.next_tag()
        return self._tag


@dataclass(eq=False, repr=False)
class Prepared:
    """A collective whose arguments have been checked."""

    channel: Channel
    key: ProgramKey
    buffers: CheckedBuffers
    operation: Operation | None
    bind: Binder
    typed: bool = field(default=True)  # whether the buffers of all ranks must have the same dtype
    registered: RegisteredCall | None = None  # if other ranks may access the buffers
    slots: bool = False  # whether it runs in memory of the host

    @property
    def name(self) -> str:
        """The name in error messages."""
        primitive, algorithm = self.key.algorithm.primitive.name, self.key.algorithm.name
        return f"{primitive} by {algorithm} on rank {self.key.rank} of {self.key.size}"

    @property
    def native(self) -> bool:
        """Whether it is the native collective."""
        return self.key.algorithm.name == NATIVE

    @property
    def by_reference(self) -> bool:
        """Whether the reference executor runs it."""
        return self.channel.by_reference and self.buffers.memory is HOST and not self.native

    @property
    def one_part(self) -> bool:
        """Whether it consists of one part, perhaps with local work before and after."""
        return not (settings.CHECK or self.key.counts_missing or self.by_reference)

    @property
    def waits_inside(self) -> bool:
        """Whether its parts wait in calls that let collectives in flight progress; a task would hold their lock."""
        return bool(self.slots) and not self.by_reference

    @property
    def simple(self) -> bool:
        """Whether it consists of one part, without work before and after."""
        return self.one_part and not (self.buffers.before or self.buffers.after)

    def run(self) -> None:
        """Run all parts, as a blocking call."""
        self.channel.running = self.name
        try:
            delayed = run_all(self.parts())
        except MismatchError:  # on all ranks
            raise
        except BaseException as error:
            self.ended_early(error)
            raise
        finally:
            self.channel.running = ""
        if delayed:
            raise delayed

    def ended_early(self, error: BaseException, *kept: object) -> None:
        """Make the communicator unusable, because messages may be pending; raise another error if that says more."""
        failure = self.channel.interrupted(self.name, error, self, *kept)
        if failure is not error:
            raise failure from error

    def parts(self) -> Iterator[Executable]:
        """The executables to run, one after the other."""
        yield from self.openings()
        yield from self.body(self.executable)

    def openings(self) -> Iterator[Executable]:
        """The parts before the collective: comparing the arguments across ranks."""
        if settings.CHECK:
            from . import consistency

            given = self.key, self.buffers, self.operation, self.typed, self.bind.form
            yield from consistency.compare(*given, self.bind.comparison)
        if self.key.counts_missing and self.bind.form == "persistent":  # its executable is made once, before it runs
            yield from self._exchange_counts()

    def executable(self) -> Executable:
        """The collective, bound to its buffers."""
        if self.slots:
            return slots.bind(self.channel, self.key, self.buffers, self.operation)
        # only after all arguments are checked; MPI itself distinguishes native collectives in flight
        return self.bound(0 if self.native and self.bind.form != "blocking" else self.bind.tag())

    def bound(self, tag: int) -> Executable:
        """The program with these buffers, and with messages of this tag."""
        peer_addresses = self.registered.peer_addresses if self.registered else None
        return self.channel.bind(self.lowered, self.buffers, self.operation, tag, peer_addresses)

    @cached_property
    def lowered(self) -> Program:
        """The program of this rank for the memory of the buffers."""
        program = lowered(self.program(), self.buffers, self.operation)
        if self.registered:
            from ..compiler.if_registered import if_registered

            here = self.channel.registered.here
            program = if_registered(self.registered.program, program, self.key.rank, tuple(here))
        return program

    def program(self) -> Program:
        """The program of this rank."""
        return native.program(self.key, self._form()) if self.native else compiled(self.key)

    @cached_property
    def anywhere(self) -> Prepared:
        """The same call on other buffers, which are not known yet."""
        found = replace(self, buffers=self.buffers.at(None, None), bind=Binder(self.channel, self.bind.form))
        found.lowered = self.lowered  # which depends on whether there is a receive buffer
        return found

    def _form(self) -> str:
        return "nonblocking" if self.bind.form == "blocking" and settings.TIMEOUT else self.bind.form

    def open(self) -> None:
        """Run the parts before the collective."""
        self.task(self.openings).run()

    def body(self, executable: Callable[[], Executable]) -> Iterator[Any]:
        """The collective, with the local work before and after it."""
        for load in self.buffers.before:
            load()
        yield from self._between(executable)
        for store in self.buffers.after:
            store()

    def _between(self, executable: Callable[[], Executable]) -> Iterator[Any]:
        """The collective without the local work before and after it."""
        if self.key.counts_missing:  # ranks that forward blocks of others first get their lengths
            yield from self._exchange_counts()
        if self.by_reference:
            yield from self._rounds(self.key, self.buffers, self.operation)
        else:
            yield executable()

    def task(self, parts: Callable[[], Iterator[Executable]]) -> Task:
        """A task that runs these parts while other calls run."""
        return Task(parts, self.name, self.channel, self.buffers.memory)

    @property
    def is_one_run(self) -> bool:
        """Whether it may be in flight as one run of the core, with nothing before and after it."""
        one = self.simple and not (self.native or recorder.current or settings.TIMEOUT)
        return one and self.buffers.memory is HOST and self.channel.mailboxes is not None

    def in_flight(self) -> Request:
        """What runs all parts while other calls run."""
        if self.is_one_run:
            return CoreTask(self.executable(), self)  # type: ignore[arg-type]
        if not self.native:
            return self.task(self.parts)
        self.open()  # now, because native collectives must start in the same order on all ranks
        executable = self.executable()
        return self.task(lambda: self.body(lambda: executable))

    def _rounds(self, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> Iterator[Executable]:
        from . import by_reference

        return by_reference.parts(self.channel.comm, key, buffers, operation, self.bind.tag())

    def _exchange_counts(self) -> Iterator[Executable]:
        key = self.key._replace(sends=(), recvs=())
        table = np.zeros(sum(key.count_rows.values()), f"i{COUNT_BYTES}")
        for region in layout(key).held.values():  # the row of this rank, if it has one
            table[region.start // COUNT_BYTES :][: region.size // COUNT_BYTES] = self._own_counts()
        buffers = CheckedBuffers(None, table, 0, table.dtype, True, None)
        if self.by_reference:
            yield from self._rounds(key, buffers, None)
        else:
            yield self.channel.bind(compiled(key), buffers, None, self.bind.tag())
        self.key = self.key._replace(counts=tuple(table.tolist()))

    def _own_counts(self) -> list[int]:
        """The bytes of the blocks of this rank, as it tells others."""
        if edges := self.key.neighbors:
            where = layout(self.key._replace(counts=()))
            return [where.size(self.key.algorithm.primitive.block_of(edge)) for edge in edges.edges]
        extents = self.key.sends if self.key.algorithm.primitive.takes_all else self.key.recvs
        return [size for _, size in extents or ()]
