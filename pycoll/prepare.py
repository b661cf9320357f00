"""From a call's arguments to what is to be run: check, choose an algorithm, compile, bind."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from . import check, native, settings
from .binding import Bound, freed_at_its_end
from .buffers import Arguments, arrange
from .cuda.memory import memory_of
from .engine import Channel
from .errors import CollectiveTimeout, WrongRoot
from .layout import COUNT_BYTES, Call, compiled
from .memory import is_host
from .ops import Operation, resolve
from .program import Program
from .progress import Flight
from .schedule import NATIVE, PRIMITIVES, Algorithm, Primitive, algorithms_of, find
from .selection import Choice, Kind, native_is_same, select
from .specs import Unserved

# (primitive, sendbuf, recvbuf, rank, size, root, recvcounts) -> Arguments
Reader = Callable[[Primitive, Any, Any, int, int, int, Any], Arguments]
Binder = Callable[[Program, Arguments, Operation | None], Bound]


@dataclass
class Prepared:
    """A collective whose arguments are in order."""

    channel: Channel
    call: Call
    arguments: Arguments
    operation: Operation | None
    bind: Binder
    typed: bool  # whether the ranks' buffers must have one dtype

    @property
    def name(self) -> str:
        """For messages to people."""
        primitive, algorithm = self.call.algorithm.primitive.name, self.call.algorithm.name
        return f"{primitive} by {algorithm} on rank {self.call.rank} of {self.call.size}"

    @property
    def native(self) -> bool:
        """Whether it is MPI's own collective."""
        return self.call.algorithm.name == NATIVE

    @property
    def simple(self) -> bool:
        """Whether it is one part, with nothing to do before and after."""
        return not (settings.CHECK or self.call.learning or self.arguments.before or self.arguments.after)

    def parts(self) -> Iterator[Bound]:
        """What is to be run, part by part."""
        yield from self.openings()
        yield from self.body(self.bound())

    def openings(self) -> Iterator[Bound]:
        """What comes before the collective proper: comparing the arguments across ranks, learning the counts."""
        if settings.CHECK:
            yield from check.compare(self.call, self.arguments, self.operation, self.typed, self.bind)
        if self.call.learning:
            yield from self._learn()

    def bound(self, bind: Binder | None = None) -> Bound:
        """The collective proper, bound to its buffers; `bind` binds it to be run again and again."""
        program = native.program(self.call, self._form(bind)) if self.native else compiled(self.call)
        return (bind or self.bind)(program, self.arguments, self.operation)

    def _form(self, bind: Binder | None) -> str:
        if bind:
            return "persistent"
        return "blocking" if self.bind == self.channel.bind and not settings.TIMEOUT else "nonblocking"

    def open(self) -> None:
        """Do what comes before the collective proper now."""
        opening = self.flight(self.openings())
        opening.take_off()
        opening.arrive()

    def body(self, bound: Bound) -> Iterator[Bound]:
        """The collective proper, with what is to be done on this rank before and after."""
        for load in self.arguments.before:
            load()
        yield bound
        for store in self.arguments.after:
            store()

    def flight(self, parts: Iterator[Bound]) -> Flight:
        """These parts, to be run while other things happen."""
        return Flight(parts, self.name, self.channel, self.arguments.memory)

    def _learn(self) -> Iterator[Bound]:
        told = self.call.algorithm.told(self.call.size, self.call.root)
        table = np.zeros((len(told), self.call.size), f"i{COUNT_BYTES}")
        if self.call.rank in told:
            places = self.call.sends if self.call.algorithm.primitive.takes_all else self.call.recvs
            table[told.index(self.call.rank)] = [size for _, size in places or ()]
        arguments = Arguments(None, table, 0, table.dtype, True, None)
        yield self.bind(compiled(self.call._replace(sends=(), recvs=())), arguments, None)
        self.call = self.call._replace(counts=tuple(map(int, table.reshape(-1))))


class Apart:
    """Binds parts of one collective so that others can run meanwhile; their requests are freed at their ends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._tag = 0

    def __call__(self, program: Program, arguments: Arguments, operation: Operation | None) -> Bound:
        """A part that is run once."""
        return freed_at_its_end(self.kept(program, arguments, operation))

    def kept(self, program: Program, arguments: Arguments, operation: Operation | None) -> Bound:
        """A part that is run again and again."""
        self._tag = self._tag or self._channel.next_tag()  # not before the arguments are known to be right
        return self._channel.bind_apart(program, arguments, operation, self._tag)


def prepare(
    name: str,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    root: int,
    comm: Any,
    algorithm: str | None,
    recvcounts: Any,
    read: Reader,
    channel: Channel,
    bind: Binder,
) -> Prepared:
    """Check the arguments and choose an algorithm; raises what `pycoll.collectives` says.

    `bind` binds each part of it to its buffers: `Channel.bind`, or an `Apart`.
    """
    channel.check_usable()
    primitive, rank, size = PRIMITIVES[name], comm.rank, comm.size
    try:
        if primitive.rooted:
            _check_root(root, size)
        arguments = read(primitive, sendbuf, recvbuf, rank, size, root, recvcounts)
        operation = resolve(op) if primitive.reduces else None
        if operation:
            if not isinstance(arguments.result, list) or arguments.result:  # an empty list of arrays has no dtype
                operation.check(arguments.dtype)
            if operation.mean and primitive.name in ("scan", "exscan"):
                raise ValueError(f"op={operation.name} is not one of {name}'s, whose ranks combine different numbers")
        chosen, choice = _algorithm(channel, name, algorithm, arguments, operation, bind)
        if chosen.name == NATIVE:
            native.check(arguments, operation)
        if not (is_host(arguments.send) and is_host(arguments.recv)):
            buffers = (sendbuf, recvbuf)
            arguments.memory = memory_of(arguments.send, arguments.recv, arguments.dtype, operation, buffers)
            arguments.memory.follow()
    except Exception as error:
        if settings.CHECK:
            mine = check.Failed(primitive.name, str(error))
            told = _tell(mine, comm, channel, bind)
            if isinstance(error, Unserved) and any(one != mine for one in told):  # not all ranks leave it to MPI
                raise check.mismatch(told) from None
        raise
    # what is only moved is moved as bytes, so that all ranks cut it alike whatever its dtype
    itemsize = arguments.dtype.itemsize if operation else 1
    length = arguments.count * arguments.dtype.itemsize // itemsize
    several = channel.host_count > 1
    segments = settings.segments(length * itemsize, several, choice.segment) if chosen.pipelined else 1
    call = Call(
        chosen,
        rank,
        size,
        int(root) if primitive.rooted else 0,
        0 if arguments.sends or arguments.recvs else length,
        itemsize,
        arguments.in_place,
        segments,
        settings.longest(several, None if chosen.pipelined else choice.segment),
        arguments.sends,
        arguments.recvs,
        hosts=channel.hosts if chosen.knows_hosts else None,
    )
    typed = bool(operation) or read is arrange
    return Prepared(channel, call, arguments, operation, bind, typed)


def _check_root(root: object, size: int) -> None:
    try:
        rank = operator.index(root)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"root={root!r} is not an integer") from None
    if not 0 <= rank < size:
        raise WrongRoot(f"root={root!r} is not a rank of the communicator of size {size}")


def _tell(mine: check.Failed, comm: MPI.Intracomm, channel: Channel, bind: Binder) -> list:
    """Let the other ranks know that this one raises an error, where they compare their arguments; what they tell."""
    told: list = []
    parts = check.exchange(comm.rank, comm.size, mine, told, bind)
    telling = Flight(parts, f"comparing the arguments of {mine.primitive} on rank {comm.rank} of {comm.size}", channel)
    telling.take_off()
    with contextlib.suppress(CollectiveTimeout):  # the error says more
        telling.arrive()
    return told


def _algorithm(
    channel: Channel,
    primitive: str,
    name: str | None,
    arguments: Arguments,
    operation: Operation | None,
    bind: Binder,
) -> tuple[Algorithm, Choice]:
    commutative = operation is None or operation.commutative
    nbytes = arguments.mean_size(channel.size)
    may_be_native = bind == channel.bind and native_is_same(channel, nbytes, arguments.dtype, operation)
    choice = select(channel, name, Kind(primitive, nbytes, commutative, may_be_native))
    algorithm = find(primitive, choice.algorithm)
    if not commutative and not algorithm.ordered:
        ordered = ", ".join(other.name for other in algorithms_of(primitive).values() if other.ordered)
        raise ValueError(f"algorithm={name!r} does not keep rank order, which op needs; these do: {ordered}")
    if settings.logger.isEnabledFor(logging.INFO):
        _log(primitive, algorithm.name, channel.size, nbytes, arguments.dtype, choice.reason)
    return algorithm, choice


_told: set[tuple] = set()


def _log(primitive: str, algorithm: str, size: int, nbytes: int, dtype: np.dtype, reason: str) -> None:
    """Tell of each new kind of call once."""
    kind = (primitive, algorithm, size, nbytes, dtype, reason)
    if kind not in _told:
        _told.add(kind)
        settings.logger.info(
            "%s of %d bytes (%s) on %d ranks: %s, %s", primitive, nbytes, dtype, size, algorithm, reason
        )
