"""Which calls use registered buffers directly, and with which program."""

from __future__ import annotations

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation
from ..base import settings
from ..compiler.blocks import ProgramKey
from ..compiler.pulled import pulled
from ..compiler.shared import has_shared_programs, shared
from ..compiler.shared_varying import accessed, blocks_by_rank, has_varying_programs, shared_varying
from ..schedule.registry import NATIVE, PRIMITIVES, Algorithm, Primitive
from ..selection.rules import registered_from
from ..selection.select import registered_limit
from .channel import Channel
from .sharing import EvenSharing, Sharing
from .sharing_varying import VaryingSharing


def can_share(channel: Channel, primitive: str, operation: Operation | None) -> bool:
    """Whether there is registered memory that calls of any length can use; the same on all ranks."""
    known = _has_programs(channel, PRIMITIVES[primitive]) and settings.EXECUTOR != "reference"
    return channel.registers and known and (operation is None or operation.predefined)


def _has_programs(channel: Channel, primitive: Primitive) -> bool:
    """Whether there are programs that access the memory of other ranks; the same on all ranks."""
    return has_shared_programs(primitive) or (has_varying_programs(primitive) and channel.facts.host_count == 1)


def uses_registered(channel: Channel, algorithm: Algorithm, nbytes: int, operation: Operation | None) -> bool:
    """Whether a call out of place, with root 0, uses its buffers directly on this host if they are registered."""
    if not (_may_share(channel, algorithm, nbytes, operation) and channel.registered.areas):
        return False
    return _has_program(channel, algorithm, nbytes)


def _has_program(channel: Channel, algorithm: Algorithm, nbytes: int) -> bool:
    """Whether there is a program for such a call on this host."""
    hosts, rank = channel.facts.hosts, channel.comm.rank
    known = hosts if algorithm.knows_hosts else None
    key = ProgramKey(*(algorithm, rank, channel.size, 0, nbytes, 1, False, 1, max(nbytes, 1)), hosts=known)
    return channel.facts.host_count == 1 or pulled(key, hosts) is not None


def _may_share(
    channel: Channel, algorithm: Algorithm, nbytes: int | None, operation: Operation | None, form: str = "blocking"
) -> bool:
    """Whether a call may use its buffers directly if they are registered; the same on all ranks.

    With None for `nbytes`, it may depend on lengths that this rank does not know.
    """
    primitive = algorithm.primitive.name
    able = algorithm.name != NATIVE and can_share(channel, primitive, operation)
    return able and (nbytes is None or nbytes >= _least(channel, primitive, form))


def _least(channel: Channel, primitive: str, form: str) -> int:
    """The smallest size of calls of this form that use registered buffers.

    Measurements are of blocking calls, so they can only raise the limit of other calls.
    """
    limit, _ = registered_limit(primitive, channel.tuned)
    return limit if form == "blocking" else max(limit, registered_from(primitive, form))


def find_sharing(
    channel: Channel, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None, form: str
) -> Sharing | None:
    """How the call uses the memory of other ranks; None if it does not.  All ranks of a host do the same."""
    primitive, mean = key.algorithm.primitive, bool(operation and operation.mean)
    varying, nbytes = has_varying_programs(primitive), buffers.mean_size(channel.size)
    may = _may_share(channel, key.algorithm, None if varying else nbytes, operation, form)
    if not (may and channel.registered.areas):
        return None
    send, recv = (0 if array is None else int(array.nbytes) for array in (buffers.send, buffers.recv))
    like, sizes = buffers.at(None, None), (send, recv)
    if varying:
        least = _least(channel, primitive.name, form) * channel.size ** (1 if primitive.rooted else 2)
        places, which = blocks_by_rank(key), accessed(primitive)
        return VaryingSharing(channel, shared_varying(key), like, sizes, operation, *places, which, least)
    several = channel.facts.host_count > 1
    program = pulled(key, channel.facts.hosts, mean) if several else shared(key, mean)
    if program is None:
        return None
    own_block = 0 if buffers.in_place else None
    if buffers.in_place and primitive.holds_in_place:
        own_block = buffers.recvs[key.rank][0] if buffers.recvs else key.rank * key.length * key.itemsize
    return EvenSharing(channel, program, like, sizes, operation, nbytes, own_block, not primitive.rooted)
