"""Arrays on a GPU: recognized by the interface that describes them, and converted to CuPy arrays without a copy."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

_DLPACK_DEVICES = (2, 13)  # DLPack device types for the memory of a CUDA GPU: kDLCUDA, kDLCUDAManaged


class UnreadableMemory(TypeError):
    """A buffer in memory that neither NumPy nor CuPy can read: on another device, or on a GPU without CuPy."""


def cupy(what: str = "a buffer on a GPU") -> Any:
    """Import CuPy; if it is not installed, raise UnreadableMemory, which says that `what` needs it."""
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise UnreadableMemory(f"{what} needs the package CuPy (the extra cuda12 or cuda13): {error}") from None
    return cupy


def gpu_possible() -> bool:
    """Whether there can be arrays on a GPU: CuPy is loaded or installed."""
    return sys.modules.get("cupy") is not None or _installed()


@cache
def _installed() -> bool:
    return find_spec("cupy") is not None


def is_device_array(array: object) -> bool:
    """Whether this is a CuPy array."""
    loaded = sys.modules.get("cupy")
    return loaded is not None and isinstance(array, loaded.ndarray)


def on_device(name: str, buffer: Any) -> bool:
    """Whether an object describes GPU memory."""
    if is_device_array(buffer) or _interface(name, buffer) is not None:
        return True
    return hasattr(buffer, "__dlpack_device__") and buffer.__dlpack_device__()[0] in _DLPACK_DEVICES


def _interface(name: str, buffer: Any) -> dict[str, Any] | None:
    try:
        return getattr(buffer, "__cuda_array_interface__", None)
    except RuntimeError as error:  # from PyTorch, for a tensor that requires a gradient
        raise TypeError(f"{name} cannot be used: {error}") from None


class DeviceArray(NamedTuple):
    """The array that ``__cuda_array_interface__`` describes."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...] | None  # in bytes; None if it is C-contiguous
    read_only: bool
    stream: int | None  # the stream on which its contents are ready

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


def described(name: str, interface: dict[str, Any]) -> DeviceArray:
    """Read ``__cuda_array_interface__``; raises TypeError if it does not follow versions 0 to 3."""
    try:
        address, read_only = interface["data"]
        shape, typestr = tuple(map(int, interface["shape"])), interface["typestr"]
        fields = interface.get("descr")
        dtype = np.dtype(typestr)
        if dtype.kind == "V" and fields and fields != [("", typestr)]:
            dtype = np.dtype([tuple(field) for field in fields])
        strides = interface.get("strides")
        strides = None if strides is None else tuple(map(int, strides))
    except (KeyError, TypeError, ValueError) as error:
        raise TypeError(f"{name} has a __cuda_array_interface__ that cannot be read ({error!r}): {interface}") from None
    if interface.get("mask") is not None:
        raise TypeError(f"{name} is a masked array, which cannot be sent as memory")
    if not address and 0 not in shape:
        raise TypeError(f"{name} has no address in its __cuda_array_interface__: {interface}")
    return DeviceArray(int(address or 0), shape, dtype, strides, bool(read_only), interface.get("stream"))


def is_read_only(name: str, buffer: Any) -> bool:
    """Whether an object on a GPU is read-only."""
    if is_device_array(buffer):
        return False
    interface = _interface(name, buffer)
    return interface is not None and described(name, interface).read_only


def device_array(name: str, buffer: Any) -> Any:
    """A CuPy array on the memory of an object on a GPU."""
    if is_device_array(buffer):
        return buffer
    interface, xp = _interface(name, buffer), cupy(f"{name} is in GPU memory, which")
    if interface is None:
        try:
            return xp.from_dlpack(buffer)
        except (BufferError, RuntimeError) as error:
            raise TypeError(f"{name} cannot be used: {error}") from None
    found = described(name, interface)
    is_bfloat16 = str(getattr(buffer, "dtype", "")) == "torch.bfloat16"
    dtype = bfloat16(f"{name} has dtype torch.bfloat16, which") if is_bfloat16 else found.dtype
    if not found.size:
        return xp.empty(found.shape, dtype)
    memory = xp.cuda.UnownedMemory(found.address, found.size * dtype.itemsize, buffer)
    array = xp.ndarray(found.shape, dtype, xp.cuda.MemoryPointer(memory, 0), found.strides)
    if found.stream is not None:
        with array.device:
            xp.cuda.runtime.streamSynchronize(found.stream)
    return array


def naming_streams(buffers: Iterable[Any]) -> list[Any]:
    """The arrays of other packages on a GPU, which may name streams, also inside lists and specifications."""
    listed = [buffer if isinstance(buffer, list | tuple) else (buffer,) for buffer in buffers]
    return [item for items in listed for item in items if not is_device_array(item) and _interface("a buffer", item)]


def streams_of(arrays: Iterable[Any]) -> list[int]:
    """The streams on which the contents of arrays of other packages are ready, as their interface now reports."""
    interfaces = [_interface("a buffer", array) for array in arrays]
    return [interface["stream"] for interface in interfaces if interface and interface.get("stream") is not None]


def bfloat16(what: str) -> np.dtype:
    """The dtype of this name, which NumPy has only through ml_dtypes; TypeError says what needs it."""
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError(f"{what} needs the package ml_dtypes (the extra bfloat16)") from None
    dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


def at(address: int, nbytes: int, dtype: np.dtype, device: int, offset: int = 0, itemsize: int = 0) -> Any:
    """A CuPy array on `nbytes` bytes at an address; with `itemsize`, on one field of elements of that size."""
    xp = cupy()
    memory = xp.cuda.UnownedMemory(address, nbytes, None, device)
    stride = itemsize or dtype.itemsize
    return xp.ndarray((nbytes // stride,), dtype, xp.cuda.MemoryPointer(memory, offset), (stride,))
