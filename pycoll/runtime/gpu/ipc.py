"""CUDA IPC: allocations of GPU memory that other processes of the host open, so that their kernels can access them.

Only memory of ``cudaMalloc`` can be exported: neither managed memory, nor memory of asynchronous pools, nor memory that
is mapped piece by piece.  An allocation may be freed, and another one may get its address, even its handle.  Therefore,
allocations are identified by a number of their own, which depends on the identifier that CUDA never uses again.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import secrets
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from ...arguments.device_arrays import cupy

HANDLE = 64  # bytes of a handle
COLUMNS = 4 + HANDLE // 8  # of a position in a table
_BUFFER_ID, _IS_MANAGED, _IS_CAPABLE = 7, 8, 10  # attributes of a pointer: CU_POINTER_ATTRIBUTE_...
_PROCESS = secrets.randbits(30) << 32  # the number of an allocation begins with a number of its process


class NotShareable(Exception):
    """GPU memory that other processes cannot open; the message is the reason."""


class Export(NamedTuple):
    """An allocation of this process that others can open."""

    number: int
    base: int
    handle: bytes


class Position(NamedTuple):
    """Where a buffer is: its allocation, the offset in it, and whether all ranks have opened the allocation."""

    export: Export
    offset: int
    agreed: bool

    def numbers(self) -> list[int]:
        """The position as a part of a row of a table."""
        number, base, handle = self.export
        return [number, base, self.offset, self.agreed, *memoryview(handle).cast("q")]

    @classmethod
    def read(cls, numbers: Sequence[int]) -> Position | None:
        """The position with these numbers; None if the buffer cannot be opened."""
        number, base, offset, agreed, *handle = numbers
        return (
            cls(Export(number, base, struct.pack(f"{HANDLE // 8}q", *handle)), offset, bool(agreed)) if number else None
        )


@cache
def driver() -> Any:
    """The library of the CUDA driver; raises NotShareable if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotShareable(f"the library of the CUDA driver cannot be loaded: {error}") from None


def _attribute(address: int, which: int) -> int:
    found = ctypes.c_ulonglong()
    code = driver().cuPointerGetAttribute(ctypes.byref(found), which, ctypes.c_ulonglong(address))
    if code:
        raise NotShareable(f"cuPointerGetAttribute failed with error {code}")
    return found.value


_numbers = itertools.count(1)


def new_number() -> int:
    """A number that no process uses again."""
    return _PROCESS | next(_numbers)  # which no other thread gets


_exports: dict[int, tuple[int, Export]] = {}  # by the address of the allocation, with its identifier


def export(address: int, nbytes: int, device: int) -> tuple[Export, int]:
    """Export the allocation that contains this memory, and return the offset of the memory in it.

    Raises NotShareable if it cannot be exported.
    """
    xp = cupy()
    with xp.cuda.Device(device):
        base, length = ctypes.c_ulonglong(), ctypes.c_size_t()
        code = driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), ctypes.c_ulonglong(address))
        if code:
            raise NotShareable(f"cuMemGetAddressRange failed with error {code}")
        start, identifier = base.value, _attribute(address, _BUFFER_ID)
        if address + nbytes > start + length.value:
            raise NotShareable("the buffer extends over several allocations")
        known, found = _exports.get(start, (None, None))
        if found is None or known != identifier:
            if not _attribute(address, _IS_CAPABLE):
                kind = "is managed" if _attribute(address, _IS_MANAGED) else "is not from cudaMalloc"
                raise NotShareable(f"CUDA IPC cannot export memory that {kind}, for example from an asynchronous pool")
            try:
                handle = xp.cuda.runtime.ipcGetMemHandle(start)
            except xp.cuda.runtime.CUDARuntimeError as error:
                raise NotShareable(f"ipcGetMemHandle failed: {error}") from None
            found = Export(new_number(), start, bytes(handle))
            _exports[start] = identifier, found
    return found, address - start


class _Mapping:
    """An open allocation of another process."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.users = 0


_open: dict[tuple[int, int], _Mapping] = {}  # by the number of the allocation, and the GPU that accesses it
_latest: dict[tuple[int, int, int], int] = {}  # the number that an address of a process has, for each GPU


class Opened:
    """The allocations of other processes that one communicator uses."""

    def __init__(self) -> None:
        self.agreed: set[int] = set()  # the numbers of allocations of this rank that all others have opened
        self.refusal = ""  # why a rank cannot open an allocation of another one
        self._used: set[tuple[int, int]] = set()

    def address(self, export: Export, device: int) -> int:
        """The address of an allocation of another process, which is opened at first use.

        Raises NotShareable if it cannot be opened.
        """
        key = export.number, device
        mapping = _open.get(key)
        if mapping is None:
            mapping = _open[key] = _Mapping(_opened(export, device))
        if key not in self._used:
            self._used.add(key)
            mapping.users += 1
        return mapping.address

    def close(self) -> None:
        """Close the allocations that no other communicator uses."""
        for key in self._used:
            if (mapping := _open.get(key)) is not None:
                mapping.users -= 1
                if not mapping.users:
                    _close(key)
        self._used.clear()


def _opened(export: Export, device: int) -> int:
    """Open an allocation; before that, close the one that had its address, which its process must have freed."""
    xp = cupy()
    place = export.number >> 32, export.base, device
    if place in _latest:
        _close((_latest.pop(place), device))
    try:
        with xp.cuda.Device(device):
            address: int = xp.cuda.runtime.ipcOpenMemHandle(export.handle)
    except xp.cuda.runtime.CUDARuntimeError as error:
        raise NotShareable(f"ipcOpenMemHandle failed: {error}") from None
    _latest[place] = export.number
    return address


def _close(key: tuple[int, int]) -> None:
    xp = cupy()
    mapping = _open.pop(key, None)
    if mapping is not None:
        with contextlib.suppress(xp.cuda.runtime.CUDARuntimeError), xp.cuda.Device(key[1]):
            xp.cuda.runtime.ipcCloseMemHandle(mapping.address)
