"""Memory of the stand-in for CuPy: it is reused at once, and filled with garbage when it is freed.

As in CuPy, GPU memory is freed in the order of the stream that it was allocated on: kernels of this stream may still
use it, but not other streams, nor MPI.  Pinned memory is freed at once, whatever still uses it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from typing import ClassVar

import numpy as np
from mpi4py import MPI

from .standin_streams import get_current_stream

GARBAGE = 0xA5
_GRAIN = 512  # bytes, as in CuPy: arrays of about the same length share memory


def memory_at(ptr, nbytes):
    return np.frombuffer(MPI.buffer.fromaddress(ptr, nbytes), np.uint8)


class Block:
    """Memory of an array and its views; it is freed with the last of them, even while kernels are queued."""

    allocations: ClassVar[dict[int, int]] = {}  # addresses and lengths of all GPU memory, which is never given back
    _free: ClassVar[defaultdict[tuple[int, int], list[np.ndarray]]] = defaultdict(list)  # by stream and length

    def __init__(self, nbytes):
        stream, size = get_current_stream(), max(nbytes + -nbytes % _GRAIN, _GRAIN)
        unused = self._free[stream.ptr, size]
        area = unused.pop() if unused else self._allocate(size)
        _poison(area, stream)
        self.bytes = area[:nbytes]
        weakref.finalize(self, self._release, area, stream, unused).atexit = False

    @classmethod
    def _allocate(cls, size):
        area = np.empty(size, np.uint8)
        cls.allocations[area.ctypes.data] = size
        return area

    @staticmethod
    def _release(area, stream, unused):
        _poison(area, stream)
        unused.append(area)


def is_accessible(ptr, nbytes):
    """Whether kernels can access this memory: GPU memory, or pinned host memory."""
    spans = [*list(Block.allocations.items()), *list(_in_use.items())]
    return not nbytes or any(start <= ptr and ptr + nbytes <= start + size for start, size in spans)


def _poison(area, stream):
    if stream.idle:
        area[...] = GARBAGE
    else:
        stream.enqueue(lambda: area.fill(GARBAGE))


_pinned: defaultdict[int, list[np.ndarray]] = defaultdict(list)
_in_use: dict[int, int] = {}  # addresses and lengths


def alloc_pinned_memory(nbytes):
    size = nbytes + -nbytes % _GRAIN
    area = _pinned[size].pop() if _pinned[size] else np.empty(size, np.uint8)
    area[...] = GARBAGE
    memory = (ctypes.c_uint8 * size).from_buffer(area)  # not an array: NumPy would keep `area` alive instead of it
    _in_use[area.ctypes.data] = size
    weakref.finalize(memory, _release_pinned, area).atexit = False
    return memory


def _release_pinned(area):
    area[...] = GARBAGE
    del _in_use[area.ctypes.data]
    _pinned[area.size].append(area)


def is_pinned(host):
    """Whether an array is in pinned memory, which a copy reads when it runs, not when it is queued."""
    start = host.ctypes.data
    return any(place <= start < place + size for place, size in list(_in_use.items()))
