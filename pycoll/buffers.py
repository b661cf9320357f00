"""The caller's buffers: recognised, checked, and allocated where none was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from .schedule import Primitive

IN_PLACE = MPI.IN_PLACE


@dataclass
class Arguments:
    """One rank's part in a collective, checked."""

    send: np.ndarray | None  # C-contiguous; None where the rank gives nothing, or gives it in `recv`
    recv: np.ndarray | None
    count: int  # elements of the vector (bcast, reduce, allreduce) or of one rank's block
    dtype: np.dtype
    in_place: bool
    result: Any  # the caller's receive buffer, or the array that was allocated


def as_array(name: str, buffer: Any) -> np.ndarray:
    """A NumPy array on the memory of any object with the buffer protocol or `__array_interface__`."""
    if type(buffer) is not np.ndarray:
        if buffer is IN_PLACE:
            raise ValueError(f"{name}=MPI.IN_PLACE is not allowed here")
        if hasattr(buffer, "__array_interface__"):
            buffer = np.asarray(buffer)  # of a subclass of ndarray too: only its memory counts
        else:
            try:
                buffer = np.asarray(memoryview(buffer))
            except TypeError:
                raise TypeError(f"{name} must be an array or have the buffer protocol, not {buffer!r}") from None
    if buffer.dtype.hasobject:
        raise TypeError(f"{name} has dtype {buffer.dtype}; Python objects cannot be sent as memory")
    if buffer.dtype.itemsize == 0:
        raise TypeError(f"{name} has dtype {buffer.dtype}, whose elements have no bytes")
    return buffer


def send_array(name: str, buffer: Any) -> np.ndarray:
    """A buffer to read from; packed if it is not C-contiguous."""
    array = as_array(name, buffer)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def recv_array(name: str, buffer: Any) -> np.ndarray:
    """A buffer to write to: it must be writeable and C-contiguous."""
    array = as_array(name, buffer)
    if not array.flags.writeable or isinstance(buffer, np.generic):  # a scalar's array is a copy
        raise ValueError(f"{name} is read-only")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous (shape {array.shape}, strides {array.strides})")
    return array


def arrange(primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> Arguments:
    """Check one rank's buffers for a collective, and allocate its result if it gave none."""
    if primitive.name == "bcast":
        return _bcast(recvbuf, rank == root)
    gives = bool(primitive.holds(rank, size, root, 1))
    gets = bool(primitive.wants(rank, size, root, 1))
    if primitive.name == "scatter" and gives and recvbuf is IN_PLACE:
        send = send_array("sendbuf", sendbuf)
        return Arguments(send, None, _blocks("sendbuf", send, size), send.dtype, True, None)
    if gives and gets and sendbuf is IN_PLACE:
        return _in_place(primitive, recvbuf, size)

    if not gives and not gets:
        return Arguments(None, None, 0, np.dtype(np.uint8), False, recvbuf)
    if not gives:
        return _receive(primitive, recvbuf)
    send = send_array("sendbuf", sendbuf)
    count = _blocks("sendbuf", send, size) if primitive.takes_all else send.size
    if not gets:
        return Arguments(send, None, count, send.dtype, False, None)
    if recvbuf is None:
        recv = np.empty(_result_shape(primitive, send.shape, send.size, size), send.dtype)
        return Arguments(send, recv, count, send.dtype, False, recv)
    recv = recv_array("recvbuf", recvbuf)
    _check_pair(send, recv, count * size if primitive.gives_all else count)
    return Arguments(send, recv, count, send.dtype, False, recvbuf)


def _receive(primitive: Primitive, recvbuf: Any) -> Arguments:
    if recvbuf is None:
        raise TypeError(f"recvbuf=None: at the non-roots of {primitive.name} a receive buffer must be given")
    recv = recv_array("recvbuf", recvbuf)
    return Arguments(None, recv, recv.size, recv.dtype, False, recvbuf)


def _bcast(buf: Any, is_root: bool) -> Arguments:
    # the root's buffer may be read-only or have gaps: it is only read
    array = send_array("buf", buf) if is_root else recv_array("buf", buf)
    return Arguments(None, array, array.size, array.dtype, is_root, buf)


def _in_place(primitive: Primitive, recvbuf: Any, size: int) -> Arguments:
    if recvbuf is None:
        raise TypeError("recvbuf=None: with sendbuf=MPI.IN_PLACE the input lies in the receive buffer")
    recv = recv_array("recvbuf", recvbuf)
    spans_all = primitive.takes_all or primitive.gives_all
    count = _blocks("recvbuf", recv, size) if spans_all else recv.size
    result = recvbuf
    if primitive.takes_all and not primitive.gives_all:  # reduce_scatter leaves its block in front
        result = recv.reshape(-1)[:count]
    return Arguments(None, recv, count, recv.dtype, True, result)


def _blocks(name: str, array: np.ndarray, size: int) -> int:
    count, rest = divmod(array.size, size)
    if rest:
        raise ValueError(f"{name} has {array.size} elements, which {size} ranks cannot share evenly")
    return count


def _check_pair(send: np.ndarray, recv: np.ndarray, needed: int) -> None:
    if send.dtype != recv.dtype:
        raise TypeError(f"sendbuf has dtype {send.dtype}, recvbuf has dtype {recv.dtype}")
    if recv.size != needed:
        raise ValueError(f"recvbuf has {recv.size} elements, but {needed} are to be received")
    check_apart(send, recv, "; pass MPI.IN_PLACE to reduce or exchange in place")


def check_apart(send: np.ndarray, recv: np.ndarray, hint: str = "") -> None:
    """ValueError if two contiguous arrays overlap."""
    ours, theirs = MPI.Get_address(recv), MPI.Get_address(send)
    if ours < theirs + send.nbytes and theirs < ours + recv.nbytes:
        raise ValueError(f"sendbuf and recvbuf overlap in memory{hint}")


def _result_shape(primitive: Primitive, shape: tuple[int, ...], count: int, size: int) -> tuple[int, ...]:
    if primitive.takes_all == primitive.gives_all:
        return shape
    if primitive.gives_all:
        return (size, *shape)
    if len(shape) > 1 and shape[0] == size:
        return shape[1:]
    if shape and shape[0] % size == 0:
        return (shape[0] // size, *shape[1:])
    return (count // size,)
