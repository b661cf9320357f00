"""A quick reading of the buffers of a call, which identifies calls of one kind.

Only the usual forms are read: contiguous arrays of NumPy or CuPy, None, MPI.IN_PLACE, and lists, as in mpi4py, of an
array or plain memory, counts and a predefined datatype.  `pycoll.arguments.check_buffers` and
`pycoll.arguments.mpi_arguments` handle other forms; they check every call that has no plan.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .arrays import IN_PLACE
from .buffer_spec import dtype_of
from .device_arrays import is_device_array

ndarray = np.ndarray
_BYTES = (mmap.mmap, bytearray, MPI.buffer)  # memory without a dtype
MOST_COUNTS = 4096  # the longest list of counts that identifies a call


class Absent(NamedTuple):
    """A placeholder for a buffer that is None or MPI.IN_PLACE."""

    dtype: str
    shape: tuple[int, ...] = ()


NONE, SAME = Absent("none"), Absent("in place")
Reading = tuple[Any, Hashable]
Key = tuple[Hashable, ...]
UNUSUAL: Reading = None, None

_DATATYPES = [MPI.BYTE, MPI.CHAR, MPI.SIGNED_CHAR, MPI.UNSIGNED_CHAR, MPI.SHORT, MPI.UNSIGNED_SHORT, MPI.INT]
_DATATYPES += [MPI.UNSIGNED, MPI.LONG, MPI.UNSIGNED_LONG, MPI.LONG_LONG, MPI.UNSIGNED_LONG_LONG, MPI.FLOAT, MPI.DOUBLE]
_DATATYPES += [MPI.C_BOOL, MPI.INT8_T, MPI.INT16_T, MPI.INT32_T, MPI.INT64_T, MPI.UINT8_T, MPI.UINT16_T, MPI.UINT32_T]
_DATATYPES += [MPI.UINT64_T, MPI.C_FLOAT_COMPLEX, MPI.C_DOUBLE_COMPLEX, MPI.COMPLEX, MPI.DOUBLE_COMPLEX]
DATATYPES: list[tuple[MPI.Datatype, np.dtype]] = []  # predefined ones, with their dtypes; they are never freed
_DTYPES: dict[int, np.dtype] = {}  # by identity


def is_array(buffer: Any) -> bool:
    """Whether this is an array, not a placeholder for None or MPI.IN_PLACE."""
    return type(buffer) is not Absent


def know_datatypes() -> None:
    """Fill the tables of datatypes, for which MPI must be initialized."""
    if not DATATYPES:
        DATATYPES.extend((one, dtype) for one in _DATATYPES if one != MPI.DATATYPE_NULL and (dtype := dtype_of(one)))
        _DTYPES.update((id(one), dtype) for one, dtype in DATATYPES)


if MPI.Is_initialized():
    know_datatypes()


def signature(buffer: Any, lists: bool) -> Reading:
    """The array (or a placeholder) and other properties of a buffer; `UNUSUAL` for forms that are not read here.

    With `lists`, a list or a tuple is a buffer specification as in mpi4py.
    """
    if type(buffer) is ndarray:
        return buffer, None
    if buffer is None:
        return NONE, None
    if buffer is IN_PLACE:
        return SAME, None
    if lists and type(buffer) in (list, tuple) and 2 <= len(buffer) <= 4:
        if type(buffer[0]) is ndarray:
            return _listed(buffer, buffer[0])
        if type(buffer[0]) in _BYTES and len(buffer[0]):
            return _listed(buffer, np.frombuffer(buffer[0], np.uint8))
    return (buffer, "on a GPU") if is_device_array(buffer) else UNUSUAL


def _listed(spec: Sequence[Any], array: np.ndarray) -> Reading:
    dtype = _DTYPES.get(id(spec[-1]))
    if dtype is None:
        more = spec[1:]
    elif dtype is array.dtype or dtype == array.dtype:
        if len(spec) == 2:
            return array, None
        more = spec[1:-1]
    elif array.flags.c_contiguous and array.dtype.isnative and array.nbytes % dtype.itemsize == 0:
        array, more = array.reshape(-1).view(dtype), spec[1:-1]
    else:
        return UNUSUAL
    counts = tuple(map(_counted, more))
    return UNUSUAL if None in counts else (array, counts or None)


def _counted(counts: Any) -> Hashable:
    """Counts or displacements, or a pair of both, as a hashable value; None for forms that are not read here."""
    if type(counts) is int:
        return counts
    if type(counts) is ndarray and counts.dtype.kind in "iu" and counts.ndim == 1 and counts.size <= MOST_COUNTS:
        return tuple(counts.tolist())
    if type(counts) in (list, tuple) and len(counts) <= MOST_COUNTS:
        found = tuple(one if type(one) is int else _counted(one) for one in counts)
        # a tuple of two may be a count and a displacement; a list of two is two counts
        return None if None in found else ("tuple", *found) if type(counts) is tuple else found
    return None


def call_kind(
    name: str, sendbuf: Any, recvbuf: Any, op: Any, root: int, algorithm: str | None, recvcounts: Any, lists: bool
) -> tuple[Key | None, Any, Any]:
    """The key of calls of this kind, and the two arrays; the key is None for forms that are not read here.

    Calls of one kind differ only in the contents and addresses of their buffers.
    """
    send, sends = (sendbuf, None) if type(sendbuf) is ndarray else signature(sendbuf, lists)
    recv, recvs = (recvbuf, None) if type(recvbuf) is ndarray else signature(recvbuf, lists)
    counts = None if recvcounts is None else _counted(recvcounts)
    if send is None or recv is None or (recvcounts is not None and counts is None):
        return None, send, recv
    kind = (name, algorithm, root, id(op), send.dtype, send.shape, recv.dtype, recv.shape, sends, recvs, counts)
    return kind, send, recv
