"""Copies of whole buffers between a GPU and pinned host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.counters import count_staging
from .device_arrays import cupy
from .streams import finish, on_own_stream, order_after_caller, own_stream


def pinned(nbytes: int) -> np.ndarray:
    """Allocate pinned host memory, which a GPU accesses directly, from the pool of CuPy."""
    return np.frombuffer(cupy().cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)


def to_host(array: Any) -> np.ndarray:
    """Copy a contiguous array on a GPU to pinned memory, after the work that is now on the current streams."""
    host = pinned(array.nbytes)
    _copy(host.ctypes.data, array.data.ptr, array.nbytes, array.device.id)
    return host.view(array.dtype)


def to_device(array: Any, host: np.ndarray, nbytes: int) -> None:
    """Copy the first `nbytes` bytes of pinned memory to a contiguous array on a GPU."""
    _copy(array.data.ptr, host.ctypes.data, nbytes, array.device.id)


def by_index(memory: Any, packed: Any, origins: np.ndarray) -> tuple[Callable[[], None], Callable[[], None]]:
    """Two calls that start copying the elements of `memory` with the indices `origins` to `packed`, and back."""
    xp, device = cupy(), memory.device.id
    with xp.cuda.Device(device):
        indices = xp.asarray(origins)

    def gather() -> None:
        xp.take(memory, indices, out=packed)

    def scatter() -> None:
        memory[indices] = packed

    return on_own_stream(device, gather), on_own_stream(device, scatter)


def _copy(to: int, source: int, nbytes: int, device: int) -> None:
    runtime = cupy().cuda.runtime
    order_after_caller(device)
    count_staging(nbytes)
    runtime.memcpyAsync(to, source, nbytes, runtime.memcpyDefault, own_stream(device).ptr)
    finish(device)
