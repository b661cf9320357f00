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
from .gpu.memory import mapped_memory
from .sharing import EvenSharing, Sharing
from .sharing_device import DeviceSharing
from .sharing_varying import VaryingSharing

CUDA_IPC_FROM = 1 << 16  # bytes; below, the ranks would take longer to exchange positions, by estimate: not measured


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


def why_no_ipc(channel: Channel, algorithm: Algorithm, nbytes: int, operation: Operation | None) -> str:
    """Why kernels do not access the GPU memory of the other ranks of this host, in a call out of place, with root 0.

    Empty if they do, unless they cannot open it.
    """
    if why := _why_no_ipc(channel, algorithm, nbytes, operation):
        return why
    return "" if _has_program(channel, algorithm, nbytes) else f"{algorithm} needs messages inside this host"


def _why_no_ipc(channel: Channel, algorithm: Algorithm, nbytes: int | None, operation: Operation | None) -> str:
    """Why no rank accesses the GPU memory of others; empty if they may.  The answer is the same on all ranks.

    With None for `nbytes`, it may depend on lengths that this rank does not know.
    """
    if channel.size == 1:
        return "there is only one rank"
    if not channel.facts.cuda_ipc:
        return "PYCOLL_CUDA_IPC is not 1 on all ranks, or some have no CuPy"
    if algorithm.name == NATIVE or not _has_programs(channel, algorithm.primitive):
        return f"there is no program for {algorithm}"
    if operation is not None and not operation.predefined:
        return "a user-defined operation cannot run on a GPU"
    return "" if nbytes is None or nbytes >= CUDA_IPC_FROM else f"the least size is {CUDA_IPC_FROM} bytes"


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
    ipc = not _why_no_ipc(channel, key.algorithm, None if varying else nbytes, operation)
    may = may and bool(channel.registered.areas)
    if not (may or ipc):
        return None
    send, recv = (0 if array is None else int(array.nbytes) for array in (buffers.send, buffers.recv))
    like, sizes = buffers.at(None, None), (send, recv)
    several = channel.facts.host_count > 1
    found: Sharing
    if varying:
        program = on_gpu = shared_varying(key)
        blocks = channel.size ** (1 if primitive.rooted else 2)
        least = _least(channel, primitive.name, form) * blocks, CUDA_IPC_FROM * blocks
        places, which = blocks_by_rank(key), accessed(primitive)
        found = VaryingSharing(channel, program, like, sizes, operation, *places, which, least)
    else:
        made = pulled(key, channel.facts.hosts, mean) if several else shared(key, mean)
        if made is None:
            return None
        program, on_gpu = made, made if several else shared(key, mean, settings.longest_on_gpu(False))
        own_block = 0 if buffers.in_place else None
        if buffers.in_place and primitive.holds_in_place:
            own_block = buffers.recvs[key.rank][0] if buffers.recvs else key.rank * key.length * key.itemsize
        found = EvenSharing(channel, program, like, sizes, operation, nbytes, own_block, not primitive.rooted)
    if not ipc:
        return found
    here = len(channel.registered.here)
    memory = mapped_memory(buffers.send, buffers.recv, buffers.dtype, operation, here, several)
    return DeviceSharing(channel, program, like, sizes, operation, found, on_gpu, memory)
