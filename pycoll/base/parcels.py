"""Parcels: Python objects on their way to other ranks.

`MPI.pickle` pickles them, whose functions a program may replace.  Long buffers in an object are no part of its pickle:
they are sent from their own memory, and received into the memory of the new object.
"""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

import numpy as np
from mpi4py import MPI

from .errors import RemoteError

PICKLED, LONG, LONG_ARRAY, FAILED, MANY, LONG_VALUE = (bytes([kind]) for kind in range(6))
_DTYPES: dict[int, np.dtype] = {np.dtype(char).num: np.dtype(char) for char in "?bBhHiIlLefdgFDG"}
PICKLER = MPI.pickle  # MPI itself does not notice if a program assigns another object to this name


class Parcel:
    """An object on its way.

    `wire` are the bytes that are sent first: the kind, and what belongs to it.  For PICKLED, that is the pickle.  For
    LONG, it is the sizes of the segments that follow: the pickle, and the buffers that are not in it.  If there are too
    MANY sizes, it is the size of a table, the first segment, which has the address and the size of each other segment.
    A LONG_ARRAY follows in one segment, after its dtype and its shape.  So does a LONG_VALUE, after its size; it is
    encoded by `pycoll.core.values`, and only `pycoll.core.objects` opens it.  A rank that has FAILED to pack its object
    sends the reason.  Segments are arrays of bytes.
    """

    __slots__ = ("segments", "wire")

    def __init__(self, wire: bytes, segments: list[np.ndarray]) -> None:
        self.wire, self.segments = wire, segments

    def split(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The table, if there is one, and the other segments."""
        tables = int(has_table(self.wire))
        return self.segments[:tables], self.segments[tables:]


def one_for_each(objs: Any, size: int) -> list[Any]:
    """The objects for `size` ranks; None stands for as many None."""
    found = [None] * size if objs is None else list(objs)
    if len(found) != size:
        raise ValueError(f"expecting {size} items, got {len(found)}")
    return found


def packed(obj: Any, room: int) -> Parcel:
    """Pack an object, with at most `room` bytes to be sent first."""
    if type(obj) is np.ndarray and obj.nbytes > room and is_plain(obj):
        about = LONG_ARRAY + struct.pack(f"{1 + obj.ndim}q", obj.dtype.num, *obj.shape)
        if len(about) <= room:
            return Parcel(about, [obj.reshape(-1).view(np.uint8)])
    return wrapped(obj, *pickled(obj), room)


def wrapped(obj: Any, data: bytes, buffers: list[Any], room: int) -> Parcel:
    """Pack an object that is `pickled`."""
    if not buffers and len(data) < room:
        return Parcel(PICKLED + data, [])
    parts = [data, *buffers]
    if buffers and not _takes_buffers():
        parts = [_bytes(PICKLER.dumps(obj))]
    segments = [np.frombuffer(part, np.uint8) for part in parts]
    if 8 * len(parts) < room:
        return Parcel(LONG + struct.pack(f"{len(segments)}q", *(one.nbytes for one in segments)), segments)
    table = np.array([(one.ctypes.data, one.nbytes) for one in segments], np.uint64).reshape(-1).view(np.uint8)
    return Parcel(MANY + struct.pack("q", table.nbytes), [table, *segments])


def long_value(encoded: np.ndarray) -> Parcel:
    """Pack a long value, which was encoded."""
    return Parcel(LONG_VALUE + struct.pack("q", encoded.nbytes), [encoded])


def is_plain(array: np.ndarray) -> bool:
    """Whether a pickle of the array gives an array of this dtype in this order of elements."""
    return _DTYPES.get(array.dtype.num) is array.dtype and array.flags.c_contiguous and array.flags.writeable


def pickled(obj: Any) -> tuple[bytes, list[Any]]:
    """The pickle of an object, and the long buffers that are not in it, if the protocol is one that can have any."""
    if PICKLER.PROTOCOL is None or not 0 <= PICKLER.PROTOCOL < 5:
        # TypeError: maybe of a function of the program that takes no `buffer_callback`; OverflowError: a huge threshold
        with contextlib.suppress(TypeError, OverflowError):
            data, buffers = PICKLER.dumps_oob(obj)
            return _bytes(data), buffers
    return _bytes(PICKLER.dumps(obj)), []


def _bytes(data: object) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"expected bytes, {type(data).__name__} found")
    return data


def _takes_buffers() -> bool:
    """Whether the function that unpickles, which may be one of the program, takes `buffers`."""
    try:
        PICKLER.loads_oob(PICKLER.dumps_oob(None)[0], [])
    except TypeError:
        return False
    return True


def failed(rank: int, error: BaseException, room: int) -> Parcel:
    """Pack the error for which a rank sends no object."""
    text = f"rank {rank} has sent no object: {type(error).__name__}"
    with contextlib.suppress(Exception):  # of the exception of a program
        text += f": {error}"
    return Parcel((FAILED + text.encode(errors="replace"))[:room], [])


def segment_sizes(wire: bytes) -> list[int]:
    """The sizes in bytes of the segments that follow; if there is a table, its size only."""
    if wire[:1] in (LONG, MANY, LONG_VALUE):
        return _numbers(wire)
    if wire[:1] == LONG_ARRAY:
        dtype, *shape = _numbers(wire)
        return [math.prod(shape) * _DTYPES[dtype].itemsize]
    return []


def has_table(wire: bytes) -> bool:
    """Whether a table is the first of the segments that follow."""
    return wire[:1] == MANY


def table_rows(table: np.ndarray) -> list[list[int]]:
    """The address and the size in bytes of each segment in a table."""
    return table.view(np.uint64).reshape(-1, 2).tolist()


def _numbers(wire: bytes) -> list[int]:
    return list(struct.unpack(f"{len(wire) // 8}q", wire[1:]))


def array_of(parcel: Parcel) -> np.ndarray:
    """The array of a LONG_ARRAY."""
    dtype, *shape = _numbers(parcel.wire)
    return parcel.segments[0].view(_DTYPES[dtype]).reshape(shape)


def unpacked(wire: bytes, segments: list[np.ndarray]) -> Any:
    """Unpack an object; `segments` are arrays of bytes without a table, whose memory becomes its own."""
    kind = wire[:1]
    if kind == PICKLED:
        return PICKLER.loads(memoryview(wire)[1:])
    if kind == FAILED:
        raise RemoteError(wire[1:].decode(errors="replace"))
    if kind == LONG_ARRAY:
        return array_of(Parcel(wire, segments))
    if len(segments) == 1:
        return PICKLER.loads(memoryview(segments[0]))  # type: ignore[arg-type]
    return PICKLER.loads_oob(memoryview(segments[0]), segments[1:])  # type: ignore[arg-type]
