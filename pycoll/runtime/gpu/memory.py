"""GPU memory: either MPI reads and writes it directly, or the data is staged through host memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from ...arguments.device_arrays import cupy, naming_streams, streams_of
from ...arguments.device_copies import pinned
from ...arguments.memory import address, is_host
from ...arguments.memory_kinds import Memory
from ...arguments.ops import Operation
from ...arguments.streams import order_after_caller, own_stream_is_current
from ...base import settings
from ...base.user_warnings import warn
from ...compiler.device import staged, unstaged
from ...compiler.program import RECV, SCRATCH, SEND, Program
from . import cuda_aware
from .combine import is_combined
from .launch import KernelLauncher


class OnDevice(Memory):
    """The kinds of memory for calls in which a GPU runs some steps of a program."""

    def __init__(self, device: int, buffers: Sequence[Any], on_device: set[int], scratch: Hashable) -> None:
        self._device = device
        self._naming = naming_streams(buffers)
        self._on_device = on_device  # the buffers of the program that are in GPU memory
        self.scratch = scratch

    def wait_for_stream(self) -> None:
        """Make the stream of pycoll wait for the current streams of the caller, and those that its arrays name."""
        order_after_caller(self._device, streams_of(self._naming))

    def set_device(self) -> None:
        """Let this thread use the GPU."""
        cupy().cuda.Device(self._device).use()

    def launcher(self, bases: list[int], dtype: np.dtype, operation: Operation | None, size: int) -> KernelLauncher:
        """Create the launcher of the steps that run on the GPU."""
        return KernelLauncher(self._device, self._on_device, bases, dtype, operation, size)


class CudaAware(OnDevice):
    """Buffers on one GPU, with a CUDA-aware MPI; scratch is also in GPU memory, and the GPU combines."""

    def __init__(self, device: int, buffers: Sequence[Any]) -> None:
        super().__init__(device, buffers, {SEND, RECV, SCRATCH}, ("device", device))

    def lowered(self, program: Program) -> Program:
        """Add waits for the GPU to the program."""
        return unstaged(program)

    def allocate(self, nbytes: int) -> Any:
        """Allocate GPU memory."""
        with own_stream_is_current(self._device):
            return cupy().empty(nbytes, np.uint8)


class Staged(OnDevice):
    """Buffers with at least one in GPU memory, mirrored in pinned host memory, where NumPy combines."""

    def __init__(self, device: int, buffers: Sequence[Any], send: int | None, recv: int | None) -> None:
        self._sizes = send, recv  # in bytes; None for a buffer in host memory
        on_device = {buffer for buffer, nbytes in zip((SEND, RECV), self._sizes) if nbytes is not None}
        super().__init__(device, buffers, on_device, ("pinned", device))

    def lowered(self, program: Program) -> Program:
        """Add copies to and from the mirrors to the program."""
        return staged(program, *self._sizes)

    def allocate(self, nbytes: int) -> Any:
        """Allocate pinned memory."""
        return pinned(nbytes)


def memory_of(
    send: Any, recv: Any, dtype: np.dtype, operation: Operation | None, buffers: Sequence[Any] = ()
) -> Memory:
    """The kind of memory for a call with at least one array in GPU memory; ValueError if they are on different GPUs.

    `buffers` are the objects that the caller passed.
    GPU addresses are passed to MPI only if all buffers are in GPU memory, MPI is CUDA-aware, and the GPU can combine.
    Short buffers may be staged all the same: the messages are the same, so each rank decides for itself.
    """
    device = _device_of(send, recv)
    short = max(array.nbytes for array in (send, recv) if array is not None) <= settings.DEVICE_STAGED
    if _all_on_gpu(send, recv) and not short and is_cuda_aware() and _can_combine(send, recv, dtype, operation):
        return CudaAware(device, buffers)
    return Staged(device, buffers, *(None if is_host(array) else array.nbytes for array in (send, recv)))


def _device_of(send: Any, recv: Any) -> int:
    """The GPU of the arrays; ValueError if there are several."""
    arrays = {name: array for name, array in (("sendbuf", send), ("recvbuf", recv)) if not is_host(array)}
    devices = {name: array.device.id for name, array in arrays.items()}
    if len(set(devices.values())) > 1:
        raise ValueError(" and ".join(f"{name} is on GPU {device}" for name, device in devices.items()))
    return int(next(iter(devices.values())))


def _all_on_gpu(send: Any, recv: Any) -> bool:
    return all(array is None or not is_host(array) for array in (send, recv))


def _can_combine(send: Any, recv: Any, dtype: np.dtype, operation: Operation | None) -> bool:
    """Whether the GPU supports the reduction, if it is one; the arrays are in its memory."""
    if operation is None:
        return True
    return all(address(array) % dtype.alignment == 0 for array in (send, recv)) and is_combined(operation, dtype)


def packs_in_mpi() -> bool:
    """Whether MPI packs datatypes with gaps in GPU memory; a UCX that is CUDA-aware alone does not."""
    return cuda_aware.support().packs


def is_cuda_aware_to(peer: int, comm: MPI.Comm) -> bool:
    """Whether a message to or from `peer` is passed to MPI with a GPU address.

    Unless MPI itself is CUDA-aware, this excludes messages of a rank to itself, which need not go through UCX.
    """
    return is_cuda_aware() and (packs_in_mpi() or peer not in (MPI.ANY_SOURCE, comm.rank))


def is_cuda_aware() -> bool:
    """Whether GPU addresses are passed to MPI; if not, warn once, unless the user has chosen this."""
    found = cuda_aware.support()
    if not found.aware and found.doubtful:
        _warn(found.reason)
    return found.aware


@cache
def _warn(reason: str) -> None:
    warn(
        f"buffers in GPU memory are staged through host memory, because MPI is not known to be CUDA-aware: {reason}; "
        "PYCOLL_CUDA_AWARE=1 (or 0) overrides this, see `python -m pycoll.info`"
    )
