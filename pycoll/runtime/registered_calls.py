"""Which calls use registered buffers directly, with which program, and how they find the buffers of other ranks."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from .. import core
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation
from ..compiler.host_gets import host_gets
from ..compiler.program_key import ProgramKey
from ..compiler.registered import RegisteredProgram, has_registered_programs, registered_program
from ..schedule.registry import COLLECTIVES, NATIVE, Algorithm
from ..selection.select import registered_limit
from .channel import Channel


class RegisteredCall(NamedTuple):
    """What calls of one kind do if their buffers are registered."""

    program: RegisteredProgram
    peer_addresses: core.PeerAddresses


def can_use_registered(channel: Channel, primitive: str, operation: Operation | None) -> bool:
    """Whether there is registered memory that calls of any length can use; the same on all ranks."""
    known = has_registered_programs(COLLECTIVES[primitive])
    return channel.registers and known and (operation is None or operation.predefined)


def uses_registered(channel: Channel, algorithm: Algorithm, nbytes: int, operation: Operation | None) -> bool:
    """Whether a call out of place, with root 0, uses its buffers directly on this host if they are registered."""
    if not _may_use_registered(channel, algorithm, nbytes, operation):
        return False
    hosts, rank = channel.facts.hosts, channel.comm.rank
    known = channel.facts.hosts_for(algorithm)
    key = ProgramKey(*(algorithm, rank, channel.size, 0, nbytes, 1, False, 1, max(nbytes, 1)), hosts=known)
    return channel.facts.host_count == 1 or host_gets(key, hosts) is not None


def _may_use_registered(channel: Channel, algorithm: Algorithm, nbytes: int, operation: Operation | None) -> bool:
    """Whether a call uses its buffers directly if they are registered; the same on all ranks of a host."""
    primitive = algorithm.primitive.name
    if algorithm.name == NATIVE or not can_use_registered(channel, primitive, operation):
        return False
    return nbytes >= registered_limit(primitive, channel.tuned)[0] and bool(channel.registered.areas)


def find_registered_call(
    channel: Channel, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None
) -> RegisteredCall | None:
    """How the call uses the memory of other ranks; None if it does not.  All ranks of a host do the same."""
    primitive, mean = key.algorithm.primitive, bool(operation and operation.mean)
    nbytes = buffers.mean_size(channel.size)
    if not _may_use_registered(channel, key.algorithm, nbytes, operation):
        return None
    several = channel.facts.host_count > 1
    program = host_gets(key, channel.facts.hosts, mean) if several else registered_program(key, mean)
    if program is None:
        return None
    own_block = 0
    if buffers.in_place and primitive.holds_in_place:
        own_block = buffers.recvs[key.rank][0] if buffers.recvs else key.rank * key.length * key.itemsize
    # blocks of other lengths would lie elsewhere; and if only some ranks work in place, they would be overwritten
    inside = buffers.in_place and not primitive.rooted
    kind = 2 * nbytes + inside
    if program.has_messages:  # it reads blocks from the output of other ranks too, so all must use one layout
        kind = crc32(repr((nbytes, inside, buffers.extents(channel.size))).encode())
    given, got = (0 if array is None else int(array.nbytes) for array in (buffers.send, buffers.recv))
    registered = channel.registered
    assert registered.mapped
    where = core.PeerAddresses(registered.mapped, registered.local_rank, program.needed, kind, (given, got), own_block)
    return RegisteredCall(program, where)
