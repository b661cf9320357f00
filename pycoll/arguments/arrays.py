"""The buffers of the caller: recognized, checked, and allocated if none was passed.

An array is a NumPy array, or a CuPy array in GPU memory; both are handled alike here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from . import device_arrays as cuda
from . import streams
from .memory import allocate_like, is_host

IN_PLACE = MPI.IN_PLACE
Action = Callable[[], object]
Array = Any  # of NumPy or CuPy


def as_array(name: str, buffer: Any) -> Array:
    """An array that shares the memory of an object with `__array_interface__`, DLPack or the buffer protocol.

    It is a CuPy array if the object has `__cuda_array_interface__`, or if DLPack reports GPU memory.
    """
    if type(buffer) is not np.ndarray:
        if buffer is IN_PLACE:
            raise ValueError(f"{name}=MPI.IN_PLACE is not allowed here")
        if hasattr(buffer, "__array_interface__"):
            buffer = np.asarray(buffer)  # subclasses of ndarray too: only the memory matters
        elif cuda.on_device(name, buffer):
            buffer = cuda.device_array(name, buffer)
        elif hasattr(buffer, "__dlpack__"):
            buffer = _from_dlpack(name, buffer)
        else:
            try:
                buffer = np.asarray(memoryview(buffer))
            except TypeError:
                why = f"{name} must be an array or another buffer, not {type(buffer).__name__}"
                raise TypeError(why + (hint(buffer) or NO_PICKLE)) from None
    if buffer.dtype.hasobject:
        raise TypeError(f"{name} has dtype {buffer.dtype}; Python objects cannot be sent as memory")
    if buffer.dtype.itemsize == 0:
        raise TypeError(f"{name} has dtype {buffer.dtype}, whose elements have no bytes")
    return buffer


NO_PICKLE = "; pycoll functions do not pickle Python objects (use the lower-case methods of mpi4py, or numpy.array)"


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
    """Raise TypeError if another argument was passed in place of the receive buffer, also where this is ignored."""
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
            return np.from_dlpack(buffer)
        except RuntimeError:  # a dtype of DLPack that NumPy does not have
            array = np.asarray(buffer)
            array.flags.writeable = False  # it may be a copy
            return array
    except (BufferError, TypeError) as error:
        raise TypeError(f"{name} cannot be used: {error}") from None


def _torch_bfloat16(name: str, tensor: Any) -> np.ndarray:
    """Convert a bfloat16 tensor of PyTorch; NumPy has this dtype only through ml_dtypes."""
    if tensor.requires_grad:
        raise TypeError(f"{name} requires a gradient; use tensor.detach()")
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError(f"{name} has dtype torch.bfloat16, which needs the package ml_dtypes") from None
    return np.from_dlpack(tensor.view(sys.modules["torch"].int16)).view(ml_dtypes.bfloat16)


def send_array(name: str, buffer: Any) -> Array:
    """The array of a buffer to read from; packed if it is not C-contiguous."""
    array = as_array(name, buffer)
    if not array.flags.c_contiguous:
        packed = allocate_like(array, array.shape)
        if not is_host(array):
            streams.follow(array.device.id)
        for action in (copying(packed, array), *finishing(packed)):
            action()
        return packed
    return array


def copying(to: Array, source: Array) -> Action:
    """A call that copies between two arrays in the same memory; on a GPU it only starts the copy."""
    return partial(np.copyto, to, source) if is_host(to) else streams.copying(to, source)


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
