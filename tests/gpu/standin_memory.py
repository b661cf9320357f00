"""Memory of the stand-in for CuPy: pools that reuse it at once, and fill it with garbage when it is freed.

As in CuPy, GPU memory is freed in the order of the stream that it was allocated on: kernels of this stream may still
use it, but not other streams, nor MPI.  Pinned memory is freed at once, whatever still uses it.

GPU memory consists of allocations that other processes can open (`standin_ipc`): small arrays share one.
`free_all_blocks` frees those that are unused; the next one of the same size gets the same address.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
import weakref
from collections import defaultdict
from typing import ClassVar

import numpy as np
from mpi4py import MPI

from .standin_streams import Stream, get_current_stream

GARBAGE, FREED = 0xA5, 0x5A
_GRAIN = 512  # bytes, as in CuPy: arrays of about the same length share memory
_CHUNK = 1 << 20  # arrays of up to a fourth of it are parts of an allocation of this size

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def map_file(file, nbytes, address=None):
    """Map a file, in place of what is at this address."""
    flags = mmap.MAP_SHARED | (0 if address is None else 0x10)  # MAP_FIXED
    found = _libc.mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    assert found != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return found


def unmap(address, nbytes):
    """Make accesses a segmentation fault."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
    assert _libc.mmap(address, nbytes, 0, flags, -1, 0) == address


opened = {}  # allocations of other processes: length and handle by address


def is_accessible(ptr, nbytes):
    """Whether kernels can access this memory: GPU memory of this process, that of others, or pinned host memory."""
    spans = [(start, one.nbytes) for start, one in list(Allocation.all.items())]
    spans += [(start, size) for start, (size, _) in list(opened.items())] + list(_in_use.items())
    return not nbytes or any(start <= ptr and ptr + nbytes <= start + size for start, size in spans)


def memory_at(ptr, nbytes):
    return np.frombuffer(MPI.buffer.fromaddress(ptr, nbytes), np.uint8)


class Allocation:
    """Memory from the driver: a file that other processes can open by the number of its descriptor."""

    all: ClassVar[dict[int, Allocation]] = {}
    _numbers = itertools.count(1)  # never used again
    _vacant: ClassVar[defaultdict[int, list[int]]] = defaultdict(list)  # addresses by length

    def __init__(self, nbytes, kind):
        self.nbytes, self.kind, self.number = nbytes, kind, next(self._numbers)
        self.file = os.memfd_create("stand-in")
        os.ftruncate(self.file, nbytes)
        self.address = map_file(self.file, nbytes, self._vacant[nbytes].pop() if self._vacant[nbytes] else None)
        self.all[self.address] = self

    def free(self):
        memory_at(self.address, self.nbytes)[...] = FREED  # which processes see that have opened it
        os.close(self.file)
        del self.all[self.address]
        self._vacant[self.nbytes].append(self.address)


class Pool:
    """A memory pool; `kind` is the function of CUDA from which its memory comes."""

    def __init__(self, kind="cudaMalloc"):
        self.kind = kind
        self._free = defaultdict(list)  # by stream and length
        self._chunk = [0, 0]  # the unused part of an allocation, from an address to another one

    def malloc(self, nbytes):
        """Stand for the allocator function, which `using_allocator` takes."""
        raise NotImplementedError

    def take(self, stream, size):
        """Return the address of unused memory, and the list to which it must return."""
        found = self._free[stream.ptr, size]
        if found:
            return found.pop(), found
        if size > _CHUNK // 4:
            return Allocation(size, self.kind).address, found
        if self._chunk[0] + size > self._chunk[1]:
            start = Allocation(_CHUNK, self.kind).address
            self._chunk = [start, start + _CHUNK]
        self._chunk[0] += size
        return self._chunk[0] - size, found

    def free_all_blocks(self):
        for stream in list(Stream._all.values()):
            stream.synchronize()
        for (_, size), unused in self._free.items():
            if size > _CHUNK // 4:
                for address in unused:
                    Allocation.all[address].free()
                unused.clear()


DEFAULT = Pool()
_threads = threading.local()


@contextlib.contextmanager
def using_allocator(malloc):
    before, _threads.pool = getattr(_threads, "pool", DEFAULT), malloc.__self__
    try:
        yield
    finally:
        _threads.pool = before


class Block:
    """Memory of an array and its views; it is freed with the last of them, even while kernels are queued."""

    def __init__(self, nbytes):
        stream, size = get_current_stream(), max(nbytes + -nbytes % _GRAIN, _GRAIN)
        address, unused = getattr(_threads, "pool", DEFAULT).take(stream, size)
        area = memory_at(address, size)
        _poison(area, stream)
        self.bytes = area[:nbytes]
        weakref.finalize(self, self._release, area, stream, unused, address).atexit = False

    @staticmethod
    def _release(area, stream, unused, address):
        _poison(area, stream)
        unused.append(address)


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
