"""Prepares a call: checks its arguments, chooses an algorithm, and makes the key of its program."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numpy as np

from ..arguments.arrays import check_position, keyword_hint
from ..arguments.buffer_spec import NeedsNativeMPI
from ..arguments.check_buffers import CheckedBuffers, check_buffers
from ..arguments.memory import is_host
from ..arguments.mpi_arguments import is_opaque, named_datatype, names_datatype, read, read_elements
from ..arguments.ops import Operation, resolve
from ..base import hooks, settings
from ..base.errors import CollectiveTimeout, MismatchError, WrongCommunicator, WrongRoot
from ..compiler.program_key import ProgramKey
from ..schedule.registry import COLLECTIVES, NATIVE, Algorithm, algorithms_of, find
from ..selection.rules import PACKED
from ..selection.select import Choice, SelectionKey, select
from . import native, slots
from .calls import Binder, Call, Prepared
from .channel import Channel
from .plans import remember
from .progress import tasks
from .task import Task
from .topology import CommTopology


def prepare(call: Call, channel: Channel) -> Prepared:
    """Check the arguments and choose an algorithm; see `pycoll.api.collectives` for the errors."""
    channel.check_usable()
    channel.epoch = hooks.epoch
    bind = Binder(channel, call.form)
    try:
        buffers, operation = check(call, channel.topology)
        if operation and operation.exact:
            return _prepare_exact(call, channel, buffers, operation, bind)
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
    registered = None
    if not choice.slots and channel.registers:
        from .registered_calls import find_registered_call

        registered = find_registered_call(channel, key, buffers, operation)
    return Prepared(channel, key, buffers, operation, bind, typed, registered, choice.slots)


def _prepare_exact(
    call: Call, channel: Channel, buffers: CheckedBuffers, operation: Operation, bind: Binder
) -> Prepared:
    from .exact_calls import ExactCall

    choice = Choice("naive", "op=EXACT_SUM")
    key = _program_key(call, channel, buffers, operation, find(call.primitive, choice.algorithm), choice)
    exact = ExactCall(channel, key, buffers, operation, bind, algorithm=call.algorithm, prepare=prepare, blocking=run)
    exact.check()
    return exact


def run(call: Call, channel: Channel) -> Any:
    """Check the arguments of a blocking call and run it; keep a plan for the next calls of its kind."""
    prepared = prepare(call, channel)
    remember(prepared, call)
    if not prepared.waits_inside and (settings.TIMEOUT or (tasks and not prepared.native)):
        prepared.task(prepared.parts).run()
    else:
        prepared.run()
    return prepared.buffers.result


def check(call: Call, topology: CommTopology | None) -> tuple[CheckedBuffers, Operation | None]:
    """Check the arguments, as far as they can be checked without knowing the channel."""
    primitive, rank, size = COLLECTIVES[call.primitive], call.comm.rank, call.comm.size
    if primitive.near:
        topology = check_topology(primitive.name, topology)
        from ..arguments.neighbor_arguments import read_between_neighbors

        near = call.sendbuf, call.recvbuf, topology.neighbors
        return read_between_neighbors(primitive, *near, strict=call.read is not read), None
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


def check_topology(primitive: str, topology: CommTopology | None) -> CommTopology:
    """Return the topology; raise an error if there is none, or if the ranks have different ones."""
    if topology is None:
        raise WrongCommunicator(
            f"{primitive} requires a communicator with a topology, as Create_cart, Create_graph and "
            "Create_dist_graph make"
        )
    if topology.problem:
        raise MismatchError(f"the ranks have different graphs: {topology.problem}")
    return topology


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
    neighbors = channel.topology.neighbors_for(chosen) if chosen.primitive.near and channel.topology else None
    if neighbors and chosen.needs_stencil:  # before the call begins
        from ..schedule.neighbors import check_stencil

        check_stencil(neighbors.stencil)
    return key._replace(
        length=0 if buffers.sends or buffers.recvs else key.length,
        in_place=buffers.in_place,
        longest=_longest(channel, buffers, key, nbytes),
        sends=buffers.sends,
        recvs=buffers.recvs,
        neighbors=neighbors,
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
        longest=settings.longest(several, chosen.primitive.reduces, None if chosen.pipelined else choice.segment),
        hosts=channel.facts.hosts_for(chosen),
    )


def _longest(channel: Channel, buffers: CheckedBuffers, key: ProgramKey, nbytes: int) -> int:
    """The longest message, which all ranks must cut alike.

    It depends on the memory of the buffers only where ranks rarely differ in this: not where one rank is the root.
    """
    on_host = is_host(buffers.send) and is_host(buffers.recv)
    if on_host or key.algorithm.primitive.rooted or nbytes <= key.longest or not channel.facts.cuda_aware:
        return key.longest
    return settings.longest_on_gpu(channel.facts.host_count > 1)


def _algorithm(
    call: Call, channel: Channel, buffers: CheckedBuffers, operation: Operation | None
) -> tuple[Algorithm, Choice]:
    primitive, commutative = call.primitive, operation is None or operation.commutative
    nbytes = _size(primitive, buffers, channel.size)
    same = native.native_is_same(channel.facts, channel.nonblocking, primitive, nbytes, buffers.dtype, operation)
    may_be_native = same and call.form == "blocking"
    from_comm = same and call.read is read and channel.facts.native and _may_be_left_to_mpi(call, channel)
    registered = channel.registers and _can_use_registered(channel, primitive, operation)
    in_slots = call.form == "blocking" and slots.serves(channel, primitive, buffers.dtype, operation)
    in_slots = in_slots and not (COLLECTIVES[primitive].near and len(_lengths(buffers)) > 1)
    if channel.size == 1:  # CuPy may have been imported later, and no other rank has to know
        in_slots = in_slots and is_host(buffers.send) and is_host(buffers.recv)
    key = SelectionKey(primitive, nbytes, commutative, may_be_native, from_comm, registered, in_slots, channel.near)
    choice = select(call.algorithm, key, channel.facts, channel.choices, channel.tuned)
    algorithm = find(primitive, choice.algorithm)
    if not commutative:
        check_order(algorithm)
    _log(primitive, algorithm.name, channel.size, nbytes, buffers.dtype, choice.reason)
    return algorithm, choice


def _may_be_left_to_mpi(call: Call, channel: Channel) -> bool:
    """Whether MPI may be faster in this form: it takes longer than the core to begin a nonblocking call."""
    if call.form == "nonblocking":
        return not channel.facts.core or call.primitive in PACKED
    return call.form == "blocking"


def check_order(algorithm: Algorithm) -> None:
    """Raise ValueError if an algorithm does not combine in rank order."""
    if not algorithm.ordered:
        name, others = algorithm.name, algorithms_of(algorithm.primitive.name).values()
        ordered = ", ".join(other.name for other in others if other.ordered)
        raise ValueError(f"algorithm={name!r} does not keep rank order, which op needs; these do: {ordered}")


def _size(primitive: str, buffers: CheckedBuffers, ranks: int) -> int:
    """The size that the choice depends on, the same on all ranks; 0 if each rank only knows its own blocks."""
    known = COLLECTIVES[primitive]
    if not known.near:
        return buffers.mean_size(ranks)
    return 0 if known.varies else max(_lengths(buffers), default=0)


def _lengths(buffers: CheckedBuffers) -> set[int]:
    return {size for _, size in [*(buffers.sends or ()), *(buffers.recvs or ())]}


def _can_use_registered(channel: Channel, primitive: str, operation: Operation | None) -> bool:
    from .registered_calls import can_use_registered

    return can_use_registered(channel, primitive, operation)


_logged: set[tuple[Any, ...]] = set()


def _log(primitive: str, algorithm: str, size: int, nbytes: int, dtype: np.dtype, reason: str) -> None:
    """Log each new kind of call once."""
    kind = (primitive, algorithm, size, nbytes, dtype, reason)
    if (logger := settings.logger()) and kind not in _logged:
        _logged.add(kind)
        logger.debug("%s of %d bytes (%s) on %d ranks: %s, %s", primitive, nbytes, dtype, size, algorithm, reason)
