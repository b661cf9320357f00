"""Files without names in memory, through which the processes of a host share memory.

Such a file is gone when the last process that uses it ends: nothing is left behind by ranks that are killed, whenever
that happens.  One rank creates it; the others open its descriptor through /proc.  In another container, the number of
the process may belong to another one, so the identity of the file is compared too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

LIMITED = "/dev/shm"  # a file system in memory, whose size the system limits
WHERE = 4  # how many numbers say where a file is
NOWHERE = [0] * WHERE


def created(nbytes: int, limited: bool = False) -> int:
    """Create a file of this size, whose memory is allocated when it is used; return its descriptor.

    Raises OSError if that is not possible.  In a `limited` file system, `os.posix_fallocate` fails if there is too
    little memory.
    """
    if sys.platform != "linux":
        raise OSError("only Linux has files without names")
    if limited:
        file = os.open(LIMITED, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    else:
        file = os.memfd_create("pycoll", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, nbytes)
    except BaseException:
        os.close(file)
        raise
    return file


def where(file: int) -> list[int]:
    """What other processes need to open a file."""
    status = os.fstat(file)
    return [os.getpid(), file, status.st_dev, status.st_ino]


def opened(location: Sequence[int]) -> int:
    """Open the file of another process of this host; raises OSError if that is not possible."""
    process, descriptor, *identity = location
    file = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    status = os.fstat(file)
    if [status.st_dev, status.st_ino] != identity:
        os.close(file)
        raise FileNotFoundError(f"process {process} is not the one that has created the memory")
    return file


def mapped(file: int, nbytes: int, populate: bool = False) -> memoryview:
    """Map a file, with `populate` all its pages now; raises OSError if that is not possible.

    `mmap.mmap` would keep a descriptor for each map, and thousands of communicators may have registered memory.
    """
    flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
    start = _libc().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    if start == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "the memory of this host cannot be mapped")
    memory = (ctypes.c_ubyte * nbytes).from_address(start)
    weakref.finalize(memory, _libc().munmap, start, nbytes).atexit = False  # other threads may still use it
    return memoryview(memory)


def clear(memory: memoryview) -> None:
    """Give whole pages of mapped memory back to the system, which makes them anew, with zeros, when they are used."""
    start = ctypes.addressof((ctypes.c_ubyte * 0).from_buffer(memory))
    if _libc().madvise(start, memory.nbytes, mmap.MADV_REMOVE):
        ctypes.memset(start, 0, memory.nbytes)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return libc
