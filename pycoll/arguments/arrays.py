"""The buffers of the caller: recognized, checked, and allocated if none was passed.

An array is a NumPy array, or a CuPy array in GPU memory; both are handled alike here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from . import device_arrays as cuda
from . import streams
from .memory import allocate_like, is_host

IN_PLACE = MPI.IN_PLACE
Action = Callable[[], object]
Array = Any  # of NumPy or CuPy


def as_array(name: str, buffer: Any, as_bytes: bool = False) -> Array:
    """An array that shares the memory of an object with `__array_interface__`, DLPack or the buffer protocol.

    It is a CuPy array if the object has `__cuda_array_interface__`, or if DLPack reports GPU memory.  With `as_bytes`,
    elements may have any byte order.
    """
    if type(buffer) is not np.ndarray:
        if buffer is IN_PLACE:
            raise ValueError(f"{name}=MPI.IN_PLACE is not allowed here")
        interface = getattr(buffer, "__array_interface__", None)
        if interface is None and cuda.on_device(name, buffer):
            buffer = cuda.device_array(name, buffer)
        else:
            buffer = _on_host(name, buffer, interface)
    if buffer.dtype.hasobject:
        raise TypeError(f"{name} has dtype {buffer.dtype}; Python objects cannot be sent as memory")
    if buffer.dtype.itemsize == 0:
        raise TypeError(f"{name} has dtype {buffer.dtype}, whose elements have no bytes")
    if not (as_bytes or buffer.dtype.isnative):
        native = buffer.dtype.newbyteorder("=")
        raise TypeError(f"{name} has dtype {buffer.dtype!r}, which is not in native byte order; use astype({native!r})")
    return buffer


def _on_host(name: str, buffer: Any, interface: dict[str, Any] | None) -> np.ndarray:
    """The array of an object in host memory, which may be of a subclass of ndarray."""
    _check_meaning(name, buffer, interface)
    if interface is not None:
        return np.asarray(buffer)
    if hasattr(buffer, "__dlpack__"):
        return _from_dlpack(name, buffer)
    try:
        return np.asarray(memoryview(buffer))
    except TypeError:
        why = f"{name} must be an array or another buffer, not {type(buffer).__name__}"
        raise TypeError(why + (hint(buffer) or NO_PICKLE)) from None


_BEYOND_MEMORY = frozenset({"mask", "unit", "units"})  # attributes of classes or objects


def is_more_than_memory(buffer: Any) -> bool:
    """Whether the memory of an object is not its value.

    These are objects of classes that override the arithmetic of NumPy, and of subclasses of ndarray with a mask or a
    unit.  Other subclasses, for example `numpy.matrix` and `numpy.memmap`, only view memory in another way.
    """
    if _class_is_more(type(buffer)):  # type: ignore[arg-type]  # classes are hashable
        return True
    own = getattr(buffer, "__dict__", ())  # fields of a record array are attributes too, but not here
    return isinstance(buffer, np.ndarray) and not _BEYOND_MEMORY.isdisjoint(own)


@lru_cache(maxsize=64)
def _class_is_more(kind: type) -> bool:
    """Whether this is so for all objects of a class."""
    if getattr(kind, "__array_ufunc__", None) not in (None, np.ndarray.__array_ufunc__):
        return True
    return issubclass(kind, np.ndarray) and any(hasattr(kind, one) for one in _BEYOND_MEMORY)


def _check_meaning(name: str, buffer: Any, interface: dict[str, Any] | None) -> None:
    """Raise TypeError if the memory of an array has no meaning without a mask, a unit or arithmetic of its own."""
    if interface is not None and interface.get("mask") is not None:
        raise TypeError(f"{name} is a masked array, which cannot be sent as memory")
    if is_more_than_memory(buffer):
        why = "whose memory alone is not its value (a mask, a unit, or arithmetic of its own)"
        raise TypeError(f"{name} is of type {type(buffer).__name__}, {why}; pass arrays of type numpy.ndarray")


NO_PICKLE = "; pycoll functions do not pickle Python objects (use pycoll.bcast_object and the like, or numpy.array)"


def hint(buffer: Any) -> str:
    """What to pass instead of an object that is not a buffer, as the end of an error message."""
    parts = buffer if isinstance(buffer, (list, tuple)) else [buffer]
    if any(isinstance(part, MPI.Datatype) for part in parts):
        return "; to pass an MPI datatype with a buffer, use pycoll.Comm"
    return ""


def keyword_hint(value: Any) -> str:
    """Which keyword passes a communicator or an operation, as the end of an error message."""
    if isinstance(value, MPI.Comm):
        return "; pass a communicator with comm="
    if isinstance(value, MPI.Op):
        return "; pass an operation with op="
    return ""


def check_position(recvbuf: Any) -> None:
    """Raise TypeError if another argument was passed instead of the receive buffer, also where this is ignored."""
    advice = keyword_hint(recvbuf)
    if isinstance(recvbuf, str):
        advice = "; pass the name of an operation with op=, and that of an algorithm with algorithm="
    elif type(recvbuf) is int:  # MPI.IN_PLACE and MPI.BOTTOM are of subclasses
        advice = "; pass a root with root="
    if advice:
        raise TypeError(f"recvbuf must be an array or another buffer, not {type(recvbuf).__name__}{advice}")


_HOST_DEVICES = (1, 3)  # DLPack device types for memory that the CPU can read: kDLCPU, kDLCUDAHost


def _from_dlpack(name: str, buffer: Any) -> np.ndarray:
    device, _ = buffer.__dlpack_device__()
    if device not in _HOST_DEVICES:
        raise cuda.UnreadableMemory(f"{name} is on a device that NumPy cannot read (DLPack device type {int(device)})")
    if str(getattr(buffer, "dtype", "")) == "torch.bfloat16":
        return _torch_bfloat16(name, buffer)
    try:
        try:
            return _writeable_if_legacy(buffer, np.from_dlpack(buffer))
        except RuntimeError:  # a dtype of DLPack that NumPy does not have
            array = np.asarray(buffer)
            array.flags.writeable = False  # it may be a copy
            return array
    except (BufferError, TypeError) as error:
        raise TypeError(f"{name} cannot be used: {error}") from None


class _Writeable:
    """Describes the memory of a read-only array as writeable, and keeps the array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def _writeable_if_legacy(buffer: Any, array: np.ndarray) -> np.ndarray:
    """The array, or a writeable one if the object only has DLPack before version 1.

    Older DLPack has no flag for this, so NumPy assumes read-only memory; `__array__` tells.
    """
    if array.flags.writeable or '"dltensor"' not in repr(_newest_capsule(buffer)):
        return array
    if hasattr(buffer, "__array__"):
        other = np.asarray(buffer)
        return other if other.ctypes.data == array.ctypes.data else array
    return np.asarray(_Writeable(array))


def _newest_capsule(buffer: Any) -> Any:
    try:
        return buffer.__dlpack__(max_version=(1, 0))
    except TypeError:
        return buffer.__dlpack__()


def _torch_bfloat16(name: str, tensor: Any) -> np.ndarray:
    """Convert a bfloat16 tensor of PyTorch."""
    if tensor.requires_grad:
        raise TypeError(f"{name} requires a gradient; use tensor.detach()")
    dtype = cuda.bfloat16(f"{name} has dtype torch.bfloat16, which")
    return np.from_dlpack(tensor.view(sys.modules["torch"].int16)).view(dtype)


def send_array(name: str, buffer: Any) -> Array:
    """The array of a buffer to read from; packed if it is not C-contiguous."""
    array = as_array(name, buffer)
    if not array.flags.c_contiguous:
        packed = allocate_like(array, array.shape)
        if not is_host(array):
            streams.order_after_caller(array.device.id)
        for action in (copying(packed, array), *finishing(packed)):
            action()
        return packed
    return array


def copying(to: Array, source: Array) -> Action:
    """A call that copies between two arrays in the same memory; on a GPU it only starts the copy."""
    copy = partial(np.copyto, to, source)
    return copy if is_host(to) else streams.on_own_stream(to.device.id, copy)


def finishing(array: Array) -> list[Action]:
    """The calls that complete copies in the memory of this array."""
    return [] if is_host(array) else [partial(streams.finish, array.device.id)]


def recv_array(name: str, buffer: Any) -> Array:
    """The array of a buffer to write to, which must be writeable and C-contiguous."""
    array = as_array(name, buffer)
    check_writeable(name, buffer, array)
    check_contiguous(name, array)
    return array


def check_contiguous(name: str, array: Array) -> None:
    """Raise ValueError if an array is not C-contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous (shape {array.shape}, strides {array.strides})")


def check_writeable(name: str, buffer: Any, array: Array) -> None:
    """Raise ValueError if the buffer that this array was made from is read-only."""
    if is_host(array):
        read_only = not array.flags.writeable or isinstance(buffer, np.generic)  # the array of a scalar is a copy
    else:
        read_only = cuda.is_read_only(name, buffer)
    if read_only:
        raise ValueError(f"{name} is read-only")
