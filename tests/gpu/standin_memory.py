"""Memory of the stand-in for CuPy: pools that reuse it at once, and fill it with garbage when it is freed.

As in CuPy, GPU memory is freed in the order of the stream that it was allocated on: kernels of this stream may still
use it, but not other streams, nor MPI.  Pinned memory is freed at once, whatever still uses it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from typing import ClassVar

import numpy as np

from .standin_streams import get_current_stream

GARBAGE = 0xA5
_GRAIN = 512  # bytes, as in CuPy: arrays of about the same length share memory


class Block:
    """Memory of an array and its views; it is freed with the last of them, even while kernels are queued."""

    _free: ClassVar[defaultdict[tuple[int, int], list[np.ndarray]]] = defaultdict(list)

    def __init__(self, nbytes):
        stream, size = get_current_stream(), nbytes + -nbytes % _GRAIN
        found = self._free[stream.ptr, size]
        area = found.pop() if found else np.empty(size, np.uint8)
        _poison(area, stream)
        self.bytes = area[:nbytes]
        weakref.finalize(self, self._release, area, stream, found).atexit = False

    @staticmethod
    def _release(area, stream, found):
        _poison(area, stream)
        found.append(area)


def _poison(area, stream):
    if stream.idle:
        area[...] = GARBAGE
    else:
        stream.tell(lambda: area.fill(GARBAGE))


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
