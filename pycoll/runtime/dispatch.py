"""Converts the arguments of a call to an executable: check, choose an algorithm, compile, bind."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import check_position, keyword_hint
from ..arguments.buffer_spec import NeedsNativeMPI
from ..arguments.check_buffers import CheckedBuffers, check_buffers
from ..arguments.memory import address, array_at, is_host
from ..arguments.memory_kinds import HOST
from ..arguments.mpi_arguments import is_opaque, named_datatype, names_datatype, read, read_elements
from ..arguments.ops import Operation, resolve
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError, WrongRoot
from ..compiler.blocks import COUNT_BYTES, ProgramKey, compiled
from ..compiler.program import BLOCKING, Program
from ..schedule.registry import NATIVE, PRIMITIVES, Algorithm, Primitive, algorithms_of, find
from ..selection.select import Choice, SelectionKey, select
from . import native, slots
from .bind import lowered
from .channel import KEPT_SCRATCH, Channel
from .executable import Executable, run_all
from .failures import TOLERANT
from .progress import InFlight, MachineTask, Task, asleep, tasks
from .recording import recorder

if TYPE_CHECKING:
    from .sharing import Sharing

# (primitive, sendbuf, recvbuf, rank, size, root, recvcounts) -> CheckedBuffers
Reader = Callable[[Primitive, Any, Any, int, int, int, Any], CheckedBuffers]


class Call(NamedTuple):
    """The arguments of one call of a collective, as the caller passed them.

    `read` checks the buffers: `check_buffers` for arrays, `pycoll.arguments.mpi_arguments` for the forms of mpi4py.
    `form` is "blocking", "nonblocking" or "persistent".
    """

    primitive: str
    comm: MPI.Intracomm
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

    def __call__(self, program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Executable:
        """Bind the program."""
        return self.channel.bind(program, buffers, operation, self.tag())

    def comparison(self, program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Executable:
        """Bind a part of the comparison of arguments.  It has a tag in all forms, so that different forms meet."""
        self._tag = self._tag or self.channel.next_tag()
        return self.channel.bind(program, buffers, operation, self._tag)

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
    sharing: Sharing | None = None  # if other ranks may access the buffers
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
    def simple(self) -> bool:
        """Whether it consists of one part, without work before and after."""
        return self.one_part and not (self.buffers.before or self.buffers.after)

    def run(self) -> None:
        """Run all parts, as a blocking call."""
        try:
            delayed = run_all(self.parts())
        except MismatchError:  # on all ranks
            raise
        except BaseException as error:
            self.ended_early(error)
            raise
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
        addresses = address(self.buffers.send), address(self.buffers.recv)
        positions = self.sharing.positions if self.sharing else None
        return self.channel.bind_lowered(self.lowered, self.buffers, addresses, self.operation, tag, positions)

    @cached_property
    def lowered(self) -> Program:
        """The program of this rank for the memory of the buffers."""
        program = lowered(self.program(), self.buffers, self.operation)
        if self.sharing:
            from ..compiler.registered import registered

            here = self.channel.registered.here
            program = registered(self.sharing.program, program, self.key.rank, tuple(here))
        return program

    def program(self) -> Program:
        """The program of this rank."""
        return native.program(self.key, self._form()) if self.native else compiled(self.key)

    def remember(self, call: Call) -> None:
        """Let the front run later calls like this one; not while tracing."""
        ready = self.simple or (self.native and self.one_part)  # MPI itself packs datatypes
        if recorder.current or settings.TIMEOUT or not (ready and self.channel.current):
            return
        method, allocates = call.read is read, None
        if not method and self.buffers.result is not call.recvbuf:
            if call.recvbuf is None and self.buffers.result is self.buffers.recv:
                allocates = self.buffers.recv
            elif not (type(call.recvbuf) is list and self.buffers.result is call.recvbuf[0]):
                return
        number = slots.NUMBERS[call.primitive, call.recvcounts is not None]
        kind = (call.form == "nonblocking") + 2 * (not method)
        given = call.algorithm, call.sendbuf, call.recvbuf, call.op, call.root, call.recvcounts
        addresses = address(self.buffers.send), address(self.buffers.recv)
        self.channel.front.remember(number, kind, *given, *addresses, self, allocates)

    def runner(self, op: object, method: bool) -> Any:
        """What runs calls like this one on other buffers: a program for the slots, a run of the machine, or a function.

        It is "machine" for collectives in flight that the machine runs, "native" for those of MPI, which takes the
        arguments of the caller, and None if each call is to be checked.
        """
        if self.native and TOLERANT:  # an error may mean that ranks have failed
            return None
        if self.native and method and (self.operation is None or id(op) in _CONSTANTS):  # MPI knows no names
            return "native"
        if not self.simple or self.buffers.memory is not HOST:
            return None
        if self.bind.form == "nonblocking":
            predefined = self.operation is None or self.operation.predefined  # others may be freed meanwhile
            return "machine" if self.is_one_run and predefined else None
        if self.native:
            given, got = (None if one is None else int(one.nbytes) for one in (self.buffers.send, self.buffers.recv))
            return partial(self.anywhere._run_native, given, got)
        if self.channel.mailboxes is None:
            return None
        if self.slots:
            return slots.assembled(self.key, self.buffers, self.operation)
        return self.anywhere.bound(BLOCKING) if self.lowered.scratch <= KEPT_SCRATCH else None

    @cached_property
    def anywhere(self) -> Prepared:
        """The same call without buffers."""
        found = replace(self, buffers=self.buffers.at(None, None), bind=Binder(self.channel, self.bind.form))
        found.lowered = self.lowered  # which depends on whether there is a receive buffer
        return found

    def _run_native(self, given: int | None, got: int | None, send: int, recv: int, *kept: object) -> None:
        """Run the collective of MPI on buffers of these sizes at these addresses."""
        arrays = (None if size is None else array_at(at, size, _BYTE) for at, size in ((send, given), (recv, got)))
        native.bound(self.channel.comm, self.program().steps[0], self.buffers.at(*arrays), self.operation)()

    def _form(self) -> str:
        return "nonblocking" if self.bind.form == "blocking" and settings.TIMEOUT else self.bind.form

    def open(self) -> None:
        """Run the parts before the collective."""
        self.task(self.openings).run()

    def body(self, executable: Callable[[], Executable]) -> Iterator[Any]:
        """The collective, with the local work before and after it."""
        for load in self.buffers.before:
            load()
        if self.key.counts_missing:  # ranks that forward blocks of others first get their lengths
            yield from self._exchange_counts()
        if self.by_reference:
            yield from self._rounds(self.key, self.buffers, self.operation)
        else:
            yield executable()
        for store in self.buffers.after:
            store()

    def task(self, parts: Callable[[], Iterator[Executable]]) -> Task:
        """A task that runs these parts while other calls run."""
        return Task(parts, self.name, self.channel, self.buffers.memory)

    @property
    def is_one_run(self) -> bool:
        """Whether it may be in flight as one run of the machine, with nothing before and after it."""
        one = self.simple and not (self.native or recorder.current or settings.TIMEOUT)
        return one and self.buffers.memory is HOST and self.channel.mailboxes is not None

    def in_flight(self) -> InFlight:
        """What runs all parts while other calls run."""
        if self.is_one_run:
            return MachineTask(self.executable(), self, tasks, asleep, None, None, None)  # type: ignore[arg-type]
        if not self.native:
            return self.task(self.parts)
        self.open()  # now, because native collectives must start in the same order on all ranks
        executable = self.executable()
        return self.task(lambda: self.body(lambda: executable))

    def _rounds(self, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None) -> Iterator[Executable]:
        from . import by_reference

        return by_reference.parts(self.channel.comm, key, buffers, operation, self.bind.tag())

    def _exchange_counts(self) -> Iterator[Executable]:
        sources = self.key.algorithm.count_sources(self.key.size, self.key.root)
        table = np.zeros((len(sources), self.key.size), f"i{COUNT_BYTES}")
        if self.key.rank in sources:
            extents = self.key.sends if self.key.algorithm.primitive.takes_all else self.key.recvs
            table[sources.index(self.key.rank)] = [size for _, size in extents or ()]
        buffers = CheckedBuffers(None, table, 0, table.dtype, True, None)
        key = self.key._replace(sends=(), recvs=())
        if self.by_reference:
            yield from self._rounds(key, buffers, None)
        else:
            yield self.bind(compiled(key), buffers, None)
        self.key = self.key._replace(counts=tuple(map(int, table.reshape(-1))))


def prepare(call: Call, channel: Channel) -> Prepared:
    """Check the arguments and choose an algorithm; see `pycoll.api.collectives` for the errors."""
    channel.check_usable()
    channel.renew()
    bind = Binder(channel, call.form)
    try:
        buffers, operation = check(call)
        chosen, choice = _algorithm(call, channel, buffers, operation)
        if chosen.name == NATIVE and operation and call.read is read and is_opaque(buffers.dtype):
            raise NeedsNativeMPI(f"{call.primitive} of elements of a derived datatype")
        if chosen.name == NATIVE:
            native.check(buffers, operation)
        if not (is_host(buffers.send) and is_host(buffers.recv)):
            from .gpu.memory import memory_of

            given = (call.sendbuf, call.recvbuf)
            buffers.memory = memory_of(buffers.send, buffers.recv, buffers.dtype, operation, given)
            buffers.memory.wait_for_stream()
    except Exception as error:
        if settings.CHECK:
            _report(error, call, channel, bind)
        raise
    key = _program_key(call, channel, buffers, operation, chosen, choice)
    typed = bool(operation) or call.read is check_buffers
    sharing = None
    if not choice.slots and channel.registers:
        from .sharing import find_sharing

        sharing = find_sharing(channel, key, buffers, operation)
    return Prepared(channel, key, buffers, operation, bind, typed, sharing, choice.slots)


def run(call: Call, channel: Channel) -> Any:
    """Check the arguments of a blocking call and run it; keep a plan for the next calls of its kind."""
    prepared = prepare(call, channel)
    prepared.remember(call)
    # in slots, a rank that waits lets collectives in flight progress
    if not (prepared.slots and prepared.one_part) and (settings.TIMEOUT or (tasks and not prepared.native)):
        prepared.task(prepared.parts).run()
    else:
        prepared.run()
    return prepared.buffers.result


def check(call: Call) -> tuple[CheckedBuffers, Operation | None]:
    """Check the arguments, as far as they can be checked without knowing the channel."""
    primitive, rank, size = PRIMITIVES[call.primitive], call.comm.rank, call.comm.size
    if primitive.rooted:
        check_root(call.root, size)
    given = call.sendbuf, call.recvbuf
    named = primitive.reduces and call.read is check_buffers and names_datatype(*given)
    if call.read is not read and primitive.name != "bcast" and not named:
        check_position(call.recvbuf)
    buffers = (read_elements if named else call.read)(primitive, *given, rank, size, call.root, call.recvcounts)
    datatype = named_datatype(*given) if named or (primitive.reduces and call.read is read) else None
    operation = resolve(call.op, datatype, lasting=call.form != "blocking") if primitive.reduces else None
    if operation:
        if operation.predefined and call.read is read and is_opaque(buffers.dtype):
            raise NeedsNativeMPI(f"{primitive.name} of elements without a NumPy dtype")
        if not isinstance(buffers.result, list) or buffers.result:  # an empty list of arrays has no dtype
            operation.check(buffers.dtype)
        if operation.mean and primitive.name in ("scan", "exscan"):
            raise ValueError(
                f"op={operation.name} is not defined for {primitive.name}, because its ranks combine different "
                "numbers of contributions"
            )
    return buffers, operation


def check_root(root: object, size: int) -> None:
    """Raise an error unless `root` is a rank of a communicator of this size."""
    try:
        rank = operator.index(root)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"root={root!r} is not an integer{keyword_hint(root)}") from None
    if not 0 <= rank < size:
        raise WrongRoot(f"root={root!r} is not a rank of the communicator of size {size}")


def _report(error: Exception, call: Call, channel: Channel, bind: Binder) -> None:
    """Send the error of this rank to the others, which compare their arguments.

    Raises MismatchError if this rank leaves the call to MPI and another rank does not.
    """
    from . import consistency

    mine = consistency.Failed(call.primitive, str(error))
    rank, size = call.comm.rank, call.comm.size
    received: list[Any] = []
    parts = consistency.exchange(rank, size, mine, received, bind.comparison)
    with contextlib.suppress(CollectiveTimeout):  # the original error is more informative
        Task(lambda: parts, f"comparing the arguments of {call.primitive} on rank {rank} of {size}", channel).run()
    if isinstance(error, NeedsNativeMPI) and any(one != mine for one in received):
        raise consistency.mismatch(received) from None


def _program_key(
    call: Call,
    channel: Channel,
    buffers: CheckedBuffers,
    operation: Operation | None,
    chosen: Algorithm,
    choice: Choice,
) -> ProgramKey:
    # data that is only moved is moved as bytes, so that all ranks cut it alike, whatever its dtype
    itemsize = buffers.dtype.itemsize if operation else 1
    nbytes = buffers.count * buffers.dtype.itemsize
    key = program_key(channel, chosen, choice, nbytes, itemsize, int(call.root))
    return key._replace(
        length=0 if buffers.sends or buffers.recvs else key.length,
        in_place=buffers.in_place,
        longest=_longest(channel, buffers, key, nbytes),
        sends=buffers.sends,
        recvs=buffers.recvs,
    )


def program_key(
    channel: Channel, chosen: Algorithm, choice: Choice, nbytes: int, itemsize: int, root: int
) -> ProgramKey:
    """The key of a call with blocks of equal length, in two buffers in host memory."""
    several = channel.facts.host_count > 1
    return ProgramKey(
        algorithm=chosen,
        rank=channel.comm.rank,
        size=channel.size,
        root=root if chosen.primitive.rooted else 0,
        length=nbytes // itemsize,
        itemsize=itemsize,
        in_place=False,
        segments=settings.segments(nbytes, several, choice.segment) if chosen.pipelined else 1,
        longest=settings.longest(several, None if chosen.pipelined else choice.segment),
        hosts=channel.facts.hosts if chosen.knows_hosts else None,
    )


def _longest(channel: Channel, buffers: CheckedBuffers, key: ProgramKey, nbytes: int) -> int:
    """The longest message, which all ranks must cut alike.

    It depends on the memory of the buffers only where ranks rarely differ in this: not where one rank is the root.
    """
    on_host = is_host(buffers.send) and is_host(buffers.recv)
    if on_host or key.algorithm.primitive.rooted or nbytes <= key.longest or not channel.facts.direct:
        return key.longest
    return settings.longest_on_gpu(channel.facts.host_count > 1)


def _algorithm(
    call: Call, channel: Channel, buffers: CheckedBuffers, operation: Operation | None
) -> tuple[Algorithm, Choice]:
    primitive, commutative = call.primitive, operation is None or operation.commutative
    nbytes = buffers.mean_size(channel.size)
    same = native_is_same(channel, primitive, nbytes, buffers.dtype, operation)
    may_be_native = same and call.form == "blocking"
    from_comm = same and call.form != "persistent" and call.read is read and channel.facts.native
    registered = channel.registers and _can_share(channel, primitive, operation)
    in_slots = call.form == "blocking" and slots.serves(channel, primitive, buffers.dtype, operation)
    key = SelectionKey(primitive, nbytes, commutative, may_be_native, from_comm, registered, in_slots, channel.near)
    choice = select(call.algorithm, key, channel.facts, channel.choices, channel.tuned)
    algorithm = find(primitive, choice.algorithm)
    if not commutative and not algorithm.ordered:
        ordered = ", ".join(other.name for other in algorithms_of(primitive).values() if other.ordered)
        raise ValueError(f"algorithm={call.algorithm!r} does not keep rank order, which op needs; these do: {ordered}")
    _log(primitive, algorithm.name, channel.size, nbytes, buffers.dtype, choice.reason)
    return algorithm, choice


def _can_share(channel: Channel, primitive: str, operation: Operation | None) -> bool:
    from .sharing import can_share

    return can_share(channel, primitive, operation)


def native_is_same(channel: Channel, primitive: str, nbytes: int, dtype: np.dtype, op: Operation | None) -> bool:
    """Whether the native collective may replace an algorithm of pycoll; the same on all ranks.

    It may not if it would give other results, or if a rank may have buffers in GPU memory.  It may not for more bytes
    than some libraries can count.  If other threads cannot call MPI at the same time, it may not on communicators with
    nonblocking collectives.
    """
    goes_on = channel.facts.native or not channel.nonblocking
    return suits_mpi(primitive, nbytes, channel.size, dtype, op) and channel.facts.host_memory and goes_on


def suits_mpi(primitive: str, nbytes: int, size: int, dtype: np.dtype, op: Operation | None) -> bool:
    """Whether the native collective gives the same results, and can count these bytes; the same on all ranks."""
    alike = op is None or native.same_arithmetic(dtype, op)
    small = PRIMITIVES[primitive].varies or nbytes * size < 1 << 31
    return alike and small and not (settings.TIMEOUT or settings.CHECK)


_BYTE = np.dtype(np.uint8)
_CONSTANTS = frozenset(id(op) for op in vars(MPI).values() if isinstance(op, MPI.Op))
_logged: set[tuple[Any, ...]] = set()


def _log(primitive: str, algorithm: str, size: int, nbytes: int, dtype: np.dtype, reason: str) -> None:
    """Log each new kind of call once."""
    kind = (primitive, algorithm, size, nbytes, dtype, reason)
    if (logger := settings.logger()) and kind not in _logged:
        _logged.add(kind)
        logger.debug("%s of %d bytes (%s) on %d ranks: %s, %s", primitive, nbytes, dtype, size, algorithm, reason)
