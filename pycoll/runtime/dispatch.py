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
from ..arguments.memory import address, is_host
from ..arguments.memory_kinds import HOST
from ..arguments.mpi_arguments import is_opaque, named_datatype, names_datatype, read, read_elements
from ..arguments.ops import Operation, resolve
from ..base import settings
from ..base.errors import CollectiveTimeout, MismatchError, WrongRoot
from ..compiler.blocks import COUNT_BYTES, ProgramKey, compiled
from ..compiler.program import BLOCKING, Program, is_native
from ..schedule.registry import NATIVE, PRIMITIVES, Algorithm, Primitive, algorithms_of, find
from ..selection.select import SHORT, Choice, SelectionKey, select
from . import native, slots
from .channel import KEPT_SCRATCH, Channel
from .executable import Executable, run_all
from .failures import TOLERANT
from .machine import MachineRun
from .plan import Plan, make_plan
from .progress import Task
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
        # only after all arguments are checked; MPI itself distinguishes native collectives in flight
        tag = None if is_native(program) else self.tag()
        return self.channel.bind(program, buffers, operation, BLOCKING if self.form == "blocking" else tag or 0)

    def comparison(self, program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Executable:
        """Bind a part of the comparison of arguments.  It has a tag in all forms, so that different forms meet."""
        self._tag = self._tag or self.channel.next_tag()
        return self.channel.bind(program, buffers, operation, self._tag)

    def tag(self) -> int | None:
        """The tag of all parts; None for blocking calls."""
        if self.form == "blocking":
            return None
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
    short: bool = False  # whether it is left to MPI because it is short

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
        return settings.EXECUTOR == "reference" and self.buffers.memory is HOST and not self.native

    @property
    def simple(self) -> bool:
        """Whether it consists of one part, without work before and after."""
        local_work = self.buffers.before or self.buffers.after
        return not (settings.CHECK or self.key.counts_missing or local_work or self.by_reference)

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
            program = slots.assembled(self.key, self.buffers, self.operation)
            return slots.bind(self.channel, program, self.buffers, self.key)
        return self.bind(self.program(), self.buffers, self.operation)

    def program(self) -> Program:
        """The program of this rank."""
        return native.program(self.key, self._form()) if self.native else compiled(self.key)

    def remember(self, call: Call) -> None:
        """Let the front run later calls of `pycoll.Comm` like this one: in slots, on the machine, or by MPI.

        Not while tracing, which records calls.  MPI does not know the names of operations, and raises other errors if
        ranks fail.
        """
        if call.read is not read or not self.simple or self.sharing or recorder.current or TOLERANT:
            return
        program = slots.assembled(self.key, self.buffers, self.operation) if self.slots else None
        quick = None if self.slots or self.short else self.quick
        if not (self.slots or quick or (self.short and (self.operation is None or id(call.op) in _CONSTANTS))):
            return
        number = slots.METHODS.index(native.function_name(call.primitive, call.recvcounts is not None))
        addresses = address(self.buffers.send), address(self.buffers.recv)
        given = call.algorithm, call.sendbuf, call.recvbuf, call.op, call.root, call.recvcounts
        self.channel.front.remember(number, call.form == "nonblocking", *given, program, quick, *addresses)

    def plan(self, call: Call, send: Any, recv: Any) -> Plan | None:
        """A plan for calls like this one, or None."""
        buffers = self.buffers
        if self.operation and not self.operation.predefined:
            return None
        allocates = call.recvbuf is None and buffers.recv is not None
        if allocates:
            recv = buffers.recv
            if buffers.result is not recv:
                return None
        plan = make_plan(self, call.op, send, recv)
        if plan is None:
            return None
        if allocates:
            plan.allocates = recv.shape, recv.dtype
        elif buffers.result is not call.recvbuf and call.read is not read:  # callers of `read` return nothing
            if not (buffers.result is None or buffers.result is recv or self._ends_in_block()):
                return None
            plan.answer = _answer(buffers.result, recv)
        return plan

    def on(self, send: Any, recv: Any) -> Prepared:
        """The same call on other buffers."""
        return replace(self, buffers=self.buffers.at(send, recv), bind=Binder(self.channel, self.bind.form))

    @cached_property
    def quick(self) -> Callable[..., object] | None:
        """A function that runs a blocking call on buffers at two addresses; None if Python runs it.

        Its further arguments are what lives on if the call ends early, because messages may still be written there.
        """
        if self.bind.form != "blocking" or self.sharing or recorder.current or settings.TIMEOUT:
            return None
        if self.slots:
            assert self.channel.slots
            run, program = self.channel.slots, slots.assembled(self.key, self.buffers, self.operation)
            return lambda send, recv, *kept: run(program, send, recv)  # others read the slots only
        if self.native or (self.operation and not self.operation.predefined) or self.program().scratch > KEPT_SCRATCH:
            return None
        executable = self.executable()
        return partial(self.on(None, None)._run_quickly, executable) if isinstance(executable, MachineRun) else None

    def _run_quickly(self, run: MachineRun, send: int, recv: int, *kept: object) -> None:
        try:
            run(send, recv)
        except BaseException as error:
            if run.broken_off:
                self.ended_early(error, *kept)
            raise

    @property
    def movable(self) -> bool:
        """Whether an executable of a collective in flight can begin again on other buffers."""
        machine = self.channel.mailboxes is not None and self.buffers.memory is HOST and not recorder.current
        return machine and not (self.sharing or self.native)

    def move(self, executable: Executable) -> None:
        """Let the executable of an earlier call begin on the buffers of this one."""
        assert isinstance(executable, MachineRun)
        executable.move(address(self.buffers.send), address(self.buffers.recv), self.bind.tag() or BLOCKING)

    def _ends_in_block(self) -> bool:
        """Whether the result is the beginning of the receive buffer."""
        return self.buffers.in_place and self.key.algorithm.primitive.name == "reduce_scatter"

    def _form(self) -> str:
        return "nonblocking" if self.bind.form == "blocking" and settings.TIMEOUT else self.bind.form

    def open(self) -> None:
        """Run the parts before the collective."""
        self.task(self.openings()).run()

    def body(self, executable: Callable[[], Executable]) -> Iterator[Any]:
        """The collective, with the local work before and after it."""
        for load in self.buffers.before:
            load()
        if self.sharing:
            tag = self.bind.tag()
            places = address(self.buffers.send), address(self.buffers.recv)
            yield from self.sharing.parts(*places, tag, lambda: self._messages(executable))
        else:
            yield from self._messages(executable)
        for store in self.buffers.after:
            store()

    def _messages(self, executable: Callable[[], Executable]) -> Iterator[Executable]:
        """The collective by messages; ranks that forward blocks of others first get their lengths."""
        if self.key.counts_missing:
            yield from self._exchange_counts()
        if self.by_reference:
            from . import reference

            tag = self.bind.tag() or BLOCKING
            yield from reference.parts(self.channel.comm, self.key, self.buffers, self.operation, tag)
        else:
            yield executable()

    def task(self, parts: Iterator[Executable]) -> Task:
        """A task that runs these parts while other calls run."""
        return Task(parts, self.name, self.channel, self.buffers.memory)

    def _exchange_counts(self) -> Iterator[Executable]:
        sources = self.key.algorithm.count_sources(self.key.size, self.key.root)
        table = np.zeros((len(sources), self.key.size), f"i{COUNT_BYTES}")
        if self.key.rank in sources:
            places = self.key.sends if self.key.algorithm.primitive.takes_all else self.key.recvs
            table[sources.index(self.key.rank)] = [size for _, size in places or ()]
        buffers = CheckedBuffers(None, table, 0, table.dtype, True, None)
        yield self.bind(compiled(self.key._replace(sends=(), recvs=())), buffers, None)
        self.key = self.key._replace(counts=tuple(map(int, table.reshape(-1))))


def _answer(result: Any, recv: Any) -> Callable[[Any], Any]:
    """A function from the array `recv` to the result of a call that does not return its receive buffer."""
    if result is None:
        return lambda recv: None
    if result is recv:
        return lambda recv: recv
    count = result.size  # the block of a reduce-scatter in place
    return lambda recv: recv.reshape(-1)[:count]


def prepare(call: Call, channel: Channel) -> Prepared:
    """Check the arguments and choose an algorithm; see `pycoll.api.collectives` for the errors."""
    channel.check_usable()
    channel.renew()
    bind = Binder(channel, call.form)
    try:
        buffers, operation = _check(call)
        chosen, choice = _algorithm(call, channel, buffers, operation)
        if chosen.name == NATIVE and operation and call.read is read and is_opaque(buffers.dtype):
            raise NeedsNativeMPI(f"{call.primitive} of elements of a derived datatype")
        if chosen.name == NATIVE:
            native.check(buffers, operation)
        if not (is_host(buffers.send) and is_host(buffers.recv)):
            from .gpu.memory import memory_of

            given = (call.sendbuf, call.recvbuf)
            buffers.memory = memory_of(buffers.send, buffers.recv, buffers.dtype, operation, given)
            buffers.memory.follow()
    except Exception as error:
        if settings.CHECK:
            _report(error, call, channel, bind)
        raise
    key = _program_key(call, channel, buffers, operation, chosen, choice)
    typed = bool(operation) or call.read is check_buffers
    sharing = None
    if not choice.slots and channel.registers:
        from .sharing_choice import find_sharing

        sharing = find_sharing(channel, key, buffers, operation, call.form)
    in_slots = choice.slots
    if sharing and choice.otherwise and call.form == "blocking":
        in_slots = choice.otherwise == "slots"
        key = key._replace(algorithm=find(call.primitive, "naive" if in_slots else NATIVE))
    return Prepared(channel, key, buffers, operation, bind, typed, sharing, in_slots, choice.reason == SHORT)


def _check(call: Call) -> tuple[CheckedBuffers, Operation | None]:
    primitive, rank, size = PRIMITIVES[call.primitive], call.comm.rank, call.comm.size
    if primitive.rooted:
        _check_root(call.root, size)
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


def _check_root(root: object, size: int) -> None:
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
        Task(parts, f"comparing the arguments of {call.primitive} on rank {rank} of {size}", channel).run()
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
    length = buffers.count * buffers.dtype.itemsize // itemsize
    several = channel.facts.host_count > 1
    return ProgramKey(
        algorithm=chosen,
        rank=call.comm.rank,
        size=channel.size,
        root=int(call.root) if chosen.primitive.rooted else 0,
        length=0 if buffers.sends or buffers.recvs else length,
        itemsize=itemsize,
        in_place=buffers.in_place,
        segments=settings.segments(length * itemsize, several, choice.segment) if chosen.pipelined else 1,
        longest=_longest(channel, buffers, chosen, choice, length * itemsize),
        sends=buffers.sends,
        recvs=buffers.recvs,
        hosts=channel.facts.hosts if chosen.knows_hosts else None,
    )


def _longest(channel: Channel, buffers: CheckedBuffers, chosen: Algorithm, choice: Choice, nbytes: int) -> int:
    """The longest message, which all ranks must cut alike.

    It depends on the memory of the buffers only where ranks rarely differ in this: not where one rank is the root.
    """
    several = channel.facts.host_count > 1
    usual = settings.longest(several, None if chosen.pipelined else choice.segment)
    on_host = is_host(buffers.send) and is_host(buffers.recv)
    if on_host or chosen.primitive.rooted or nbytes <= usual or not channel.facts.direct:
        return usual
    return settings.longest_on_gpu(several)


def _algorithm(
    call: Call, channel: Channel, buffers: CheckedBuffers, operation: Operation | None
) -> tuple[Algorithm, Choice]:
    primitive, commutative = call.primitive, operation is None or operation.commutative
    nbytes = buffers.mean_size(channel.size)
    same = native_is_same(channel, primitive, nbytes, buffers.dtype, operation)
    may_be_native = same and call.form == "blocking"
    drop_in = same and call.form != "persistent" and call.read is read and channel.facts.native
    registered = channel.registers and _can_share(channel, primitive, operation)
    in_slots = call.form == "blocking" and slots.serves(channel, primitive, buffers.dtype, operation)
    key = SelectionKey(primitive, nbytes, commutative, may_be_native, drop_in, registered, in_slots)
    choice = select(call.algorithm, key, channel.facts, channel.choices, channel.tuned)
    algorithm = find(primitive, choice.algorithm)
    if not commutative and not algorithm.ordered:
        ordered = ", ".join(other.name for other in algorithms_of(primitive).values() if other.ordered)
        raise ValueError(f"algorithm={call.algorithm!r} does not keep rank order, which op needs; these do: {ordered}")
    _log(primitive, algorithm.name, channel.size, nbytes, buffers.dtype, choice.reason)
    return algorithm, choice


def _can_share(channel: Channel, primitive: str, operation: Operation | None) -> bool:
    from .sharing_choice import can_share

    return can_share(channel, primitive, operation)


def native_is_same(channel: Channel, primitive: str, nbytes: int, dtype: np.dtype, op: Operation | None) -> bool:
    """Whether the native collective may replace an algorithm of pycoll; the same on all ranks.

    It may not if it would give other results, or if a rank may have buffers in GPU memory.  It may not for more bytes
    than some libraries can count.  If other threads cannot call MPI at the same time, it may not on communicators with
    nonblocking collectives.
    """
    alike = op is None or native.same_arithmetic(dtype, op)
    small = PRIMITIVES[primitive].varies or nbytes * channel.size < 1 << 31
    goes_on = channel.facts.native or not channel.nonblocking
    return alike and small and channel.facts.host_memory and goes_on and not (settings.TIMEOUT or settings.CHECK)


_CONSTANTS = frozenset(id(op) for op in vars(MPI).values() if isinstance(op, MPI.Op))
_logged: set[tuple[Any, ...]] = set()


def _log(primitive: str, algorithm: str, size: int, nbytes: int, dtype: np.dtype, reason: str) -> None:
    """Log each new kind of call once."""
    kind = (primitive, algorithm, size, nbytes, dtype, reason)
    if (logger := settings.logger()) and kind not in _logged:
        _logged.add(kind)
        logger.debug("%s of %d bytes (%s) on %d ranks: %s, %s", primitive, nbytes, dtype, size, algorithm, reason)
