"""CUDA IPC of the stand-in for CuPy: processes open the allocations of others, which are files.

Unlike on a GPU, an error is raised whenever CUDA leaves the outcome open.
"""

from __future__ import annotations

import os
import struct

from .standin_memory import Allocation, map_file, opened, unmap
from .standin_streams import CUDARuntimeError, Event, Imported

INVALID_VALUE = 1
_HANDLE = "<iiQ"  # process, descriptor, length: another allocation may get the same handle when one is freed


class Ipc:
    """Handles and mappings; tests can let the next ones fail."""

    def __init__(self):
        self.opened = opened
        self.opens = 0  # calls of ipcOpenMemHandle
        self.refuses = self.refuses_events = False  # as if GPUs could not access the memory of each other

    def get(self, ptr):
        found = containing(ptr)
        if found is None or found.kind != "cudaMalloc":
            raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        return struct.pack(_HANDLE, os.getpid(), found.file, found.nbytes).ljust(64, b"\0")

    def open(self, handle, flags=1):
        assert len(handle) == 64
        self.opens += 1
        process, file, nbytes = struct.unpack_from(_HANDLE, handle)
        if process == os.getpid() or self.refuses:
            raise CUDARuntimeError("cudaErrorDeviceUninitialized: invalid device context")
        if handle in [known for _, known in self.opened.values()]:
            raise CUDARuntimeError("cudaErrorAlreadyMapped: resource already mapped")
        try:
            there = f"/proc/{process}/fd/{file}"
            mine = os.open(there, os.O_RDWR) if "stand-in" in os.readlink(there) else -1
            if mine < 0 or os.fstat(mine).st_size != nbytes:
                raise OSError("another file")
        except OSError as error:
            raise CUDARuntimeError(f"cudaErrorMapBufferObjectFailed: {error}") from None
        address = map_file(mine, nbytes)
        os.close(mine)
        self.opened[address] = nbytes, handle
        return address

    def close(self, address):
        if address not in self.opened:
            raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        unmap(address, self.opened.pop(address)[0])

    def get_event(self, ptr):
        event = Event._all[ptr]
        if getattr(event, "shared", None) is None:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        event.exported = True
        return struct.pack(_HANDLE, os.getpid(), event.file, ptr).ljust(64, b"\0")

    def open_event(self, handle):
        process, file, _ = struct.unpack_from(_HANDLE, handle)
        if process == os.getpid() or self.refuses_events or handle in Imported.opened:
            raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        there = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        try:
            return Imported(handle, there).ptr
        finally:
            os.close(there)


ipc = Ipc()


def containing(ptr):
    """Return the allocation that contains an address, or None."""
    return next((one for start, one in Allocation.all.items() if start <= ptr < start + one.nbytes), None)


class Driver:
    """The library of the CUDA driver, with pointers to ctypes objects as arguments."""

    @staticmethod
    def cuMemGetAddressRange_v2(base, size, ptr):
        found = containing(ptr.value)
        if found is None:
            return INVALID_VALUE
        base._obj.value, size._obj.value = found.address, found.nbytes
        return 0

    @staticmethod
    def cuPointerGetAttribute(data, attribute, ptr):
        found = containing(ptr.value)
        if found is None:
            return INVALID_VALUE
        data._obj.value = {
            7: found.number,
            8: found.kind == "cudaMallocManaged",
            10: found.kind == "cudaMalloc",
        }[attribute]
        return 0
