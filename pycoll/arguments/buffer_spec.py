"""The buffer specifications of mpi4py.

These are ``buf``, ``[buf, type]``, ``[buf, count, type]`` and ``[buf, (counts, displs), type]``.

They are read as in mpi4py (``msgbuffer.pxi``), and become a `BufferView`: memory, and the positions of blocks in it.
Counts and displacements are in elements of the datatype; displacements of alltoallw are in bytes.  Blocks of a datatype
with gaps are packed into separate memory before a collective and unpacked after it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..base.errors import WrongDatatype
from ..compiler.program_key import Extents, side_by_side
from ..schedule.registry import NATIVE
from .arrays import Action, Array, as_array, check_writeable, copying, finishing
from .check_buffers import counts_array
from .device_arrays import UnreadableMemory
from .memory import allocate_like, is_host


class NeedsNativeMPI(Exception):
    """A call that only the native collective supports, for example a reduction of elements without a NumPy dtype."""

    def check_algorithm(self, name: str | None) -> None:
        """Raise TypeError if the call names an algorithm of pycoll."""
        if name not in (None, NATIVE):
            raise TypeError(f"algorithm={name!r}: {self} is left to MPI; omit `algorithm`, or set algorithm={NATIVE!r}")


class Spec(NamedTuple):
    """The items of a specification."""

    buffer: Any
    counts: Any
    displs: Any
    datatype: MPI.Datatype | None


def parse(spec: Any, vector: bool) -> Spec:
    """The items of a specification; the errors for too few or too many items are those of mpi4py."""
    if not isinstance(spec, list | tuple):
        return Spec(spec, None, None, None)
    if not 2 <= len(spec) <= 4:
        raise ValueError("message: expecting 2 to 4 items")
    buffer, *middle = spec
    counts = displs = datatype = None
    if len(spec) == 4:
        counts, displs, datatype = middle
    else:
        counts = middle[0]
        if len(spec) == 3:
            datatype = middle[1]
        elif isinstance(counts, MPI.Datatype | str):
            counts, datatype = None, counts
        if isinstance(counts, tuple) or (isinstance(counts, list) and not vector):
            counts, displs = counts
    return Spec(buffer, counts, displs, _datatype(datatype))


def _datatype(given: Any) -> MPI.Datatype | None:
    if isinstance(given, MPI.Datatype) and given == MPI.DATATYPE_NULL:
        raise WrongDatatype("message: the datatype is MPI.DATATYPE_NULL, or has been freed")
    if given is None or isinstance(given, MPI.Datatype):
        return given
    try:
        return MPI.Datatype.fromcode(given)
    except ValueError:
        raise KeyError(f"cannot map {given!r} to MPI datatype") from None


_DATATYPES = [MPI.BYTE, MPI.CHAR, MPI.SIGNED_CHAR, MPI.UNSIGNED_CHAR, MPI.SHORT, MPI.UNSIGNED_SHORT, MPI.INT]
_DATATYPES += [MPI.UNSIGNED, MPI.LONG, MPI.UNSIGNED_LONG, MPI.LONG_LONG, MPI.UNSIGNED_LONG_LONG, MPI.FLOAT, MPI.DOUBLE]
_DATATYPES += [MPI.C_BOOL, MPI.INT8_T, MPI.INT16_T, MPI.INT32_T, MPI.INT64_T, MPI.UINT8_T, MPI.UINT16_T, MPI.UINT32_T]
_DATATYPES += [MPI.UINT64_T, MPI.C_FLOAT_COMPLEX, MPI.C_DOUBLE_COMPLEX, MPI.COMPLEX, MPI.DOUBLE_COMPLEX]

# quadruple precision: NumPy has a different type of the same size and code
_WITHOUT_DTYPE = [datatype for datatype in (MPI.REAL16, MPI.COMPLEX32) if datatype != MPI.DATATYPE_NULL]

# The datatypes of MPI for MINLOC and MAXLOC, with the type of the value; the index is an int
_PAIRS = [
    (MPI.FLOAT_INT, "f"),
    (MPI.DOUBLE_INT, "d"),
    (MPI.LONG_INT, "l"),
    (MPI.TWOINT, "i"),
    (MPI.SHORT_INT, "h"),
    (MPI.LONG_DOUBLE_INT, "g"),
]


def dtype_of(datatype: MPI.Datatype) -> np.dtype | None:
    """The NumPy dtype of the elements of an MPI datatype; None if there is none."""
    if any(datatype == other for other in _WITHOUT_DTYPE):
        return None
    for pair, value in _PAIRS:
        if datatype == pair:
            return np.dtype([("value", value), ("index", "i")], align=True)
    if not datatype.is_predefined:
        return None
    try:
        dtype = np.dtype(datatype.tocode())
    except (TypeError, ValueError, KeyError):
        return None
    return dtype if dtype.itemsize == datatype.size else None


@cache
def predefined() -> list[tuple[MPI.Datatype, np.dtype]]:
    """Predefined datatypes of MPI, which it never frees, with their dtypes; MPI must be initialized."""
    return [(one, dtype) for one in _DATATYPES if one != MPI.DATATYPE_NULL and (dtype := dtype_of(one))]


def opaque_dtype(datatype: MPI.Datatype) -> np.dtype | None:
    """A dtype of elements of as many bytes as those of a derived datatype; None if these have gaps."""
    start, length = datatype.Get_true_extent()
    has_gaps = start != 0 or datatype.lb != 0 or not 0 < datatype.size == datatype.extent == length
    return None if datatype.is_predefined or has_gaps else np.dtype((np.void, datatype.size))


def is_dense(datatype: MPI.Datatype) -> bool:
    """Whether elements are contiguous, in the order in which they are sent."""
    if datatype.is_predefined:
        return datatype.size == datatype.extent
    if datatype.combiner in (MPI.COMBINER_DUP, MPI.COMBINER_CONTIGUOUS):
        return is_dense(datatype.decode()[0])
    return False


def memory(name: str, buffer: Any, writable: bool, datatype: MPI.Datatype | None = None) -> Array:
    """The bytes of a contiguous buffer, in the order of their addresses."""
    if buffer is None:
        return np.empty(0, np.uint8)
    array = as_array(name, buffer, as_bytes=datatype is not None and datatype.is_predefined and datatype.size == 1)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(f"{name} is not contiguous (shape {array.shape}, strides {array.strides})")
    if writable:
        check_writeable(name, buffer, array)
    return (array if array.flags.c_contiguous else array.T).reshape(-1).view(np.uint8)


@dataclass
class BufferView:
    """The input or the output of a call: memory, the positions of its blocks in bytes, packing and unpacking."""

    array: Array
    extents: Extents
    dtype: np.dtype | None  # of the elements, if they have a NumPy dtype
    load: list[Action] = field(default_factory=list)
    store: list[Action] = field(default_factory=list)

    def whole(self) -> Array:
        """The memory of contiguous blocks."""
        start, end = self.extents[0][0], sum(self.extents[-1])
        return self.array[start:end]


def read_view(
    name: str, spec: Any, blocks: int, writable: bool, vector: bool = False, typed: bool = False
) -> BufferView:
    """Read a buffer of `blocks` blocks; with `vector`, each has its own count and displacement.

    Elements with gaps are packed, unless they have a NumPy dtype and will be combined (`typed`).  Those of a derived
    datatype will be combined as opaque bytes.
    """
    buffer, counts, displs, datatype = parse(spec, vector)
    if buffer is MPI.BOTTOM:
        counts = 0 if counts is None else counts
        return _packed(MPI.BOTTOM, spans(counts, displs, blocks, vector), datatype)
    array = memory(name, buffer, writable, datatype)
    dtype = as_array(name, buffer).dtype if buffer is not None and not datatype else None
    extent = datatype.extent if datatype else dtype.itemsize if dtype else 1
    if counts is None:
        counts = _infer(name, array.size, extent, displs, blocks, vector)
    listed = spans(counts, displs, blocks, vector)
    if datatype:
        dtype = dtype_of(datatype) or (opaque_dtype(datatype) if typed else None)
    if datatype and not is_dense(datatype) and not (typed and dtype):
        view = _packed(array, listed, datatype)
    else:
        view = BufferView(array, tuple((displ * extent, count * extent) for count, displ in listed), dtype)
    for count, displ in listed:
        _check_fits(name, array.size, count, displ, extent, datatype)
    return view


def is_unreadable(spec: Any) -> bool:
    """Whether the buffer of a specification is in memory that neither NumPy nor CuPy can read, but perhaps MPI."""
    buffer = spec[0] if isinstance(spec, list | tuple) and spec else spec
    try:
        as_array("buf", buffer)
    except (TypeError, ValueError) as error:
        return isinstance(error, UnreadableMemory)
    return False


def elements(name: str, spec: Any) -> int:
    """The number of elements of a buffer."""
    buffer, counts, displs, datatype = parse(spec, vector=False)
    if counts is not None:
        return operator.index(counts)
    array = memory(name, buffer, False, datatype)
    extent = datatype.extent if datatype else as_array(name, buffer).dtype.itemsize
    count: int = _infer(name, array.size, extent, displs, 1, vector=False)
    return count


def _infer(name: str, nbytes: int, extent: int, displs: Any, blocks: int, vector: bool) -> Any:
    """The count of each block, for a specification without counts."""
    if extent <= 0:
        raise ValueError(f"message: cannot infer count, datatype extent {extent}")
    if displs is not None and not vector:
        nbytes -= operator.index(displs) * extent
    entries, rest = divmod(nbytes, extent)
    if rest:
        raise ValueError(
            f"message: cannot infer count, buffer length {nbytes} is not a multiple of datatype extent {extent}"
        )
    if vector:
        return [entries // blocks + (entries % blocks > i) for i in range(blocks)]
    count, rest = divmod(entries, blocks)
    if rest:
        raise ValueError(
            f"message: cannot infer count, number of entries {entries} is not a multiple of "
            f"required number of blocks {blocks}: {name}"
        )
    return count


def spans(counts: Any, displs: Any, blocks: int, vector: bool) -> list[tuple[int, int]]:
    """(count, displacement) of each block, in elements."""
    if counts is None:
        raise ValueError("message: cannot infer count")
    if not vector:
        count, displ = operator.index(counts), operator.index(displs or 0)
        if count < 0:
            raise ValueError(f"message: negative count {count}")
        if displ < 0:
            raise ValueError(f"message: negative displacement {displ}")
        return [(count, displ + i * count) for i in range(blocks)]
    counts = counts_array("counts", counts, blocks)
    if displs is None:
        displs = [start for start, _ in side_by_side(counts)]
    elif np.ndim(displs) == 0:
        displs = [operator.index(displs) * i for i in range(blocks)]
    return list(zip(counts, counts_array("displs", displs, blocks)))


def _check_fits(name: str, nbytes: int, count: int, displ: int, extent: int, datatype: MPI.Datatype | None) -> None:
    last = displ * extent + (count - 1) * extent
    end = last + (sum(datatype.Get_true_extent()) if datatype else extent)
    if count and end > nbytes:
        raise ValueError(
            f"message: {name} has {nbytes} bytes, but {count} elements at displacement {displ} end at byte {end}"
        )


def _packed(buffer: Any, listed: list[tuple[int, int]], datatype: MPI.Datatype | None) -> BufferView:
    """A view of blocks of a datatype with gaps, packed in contiguous memory."""
    if datatype is None:
        raise ValueError("message: cannot infer count, datatype is null")
    return _packed_at(buffer, [(count, displ * datatype.extent) for count, displ in listed], datatype)


def _packed_at(buffer: Any, listed: list[tuple[int, int]], datatype: MPI.Datatype) -> BufferView:
    """As `_packed`, with displacements in bytes."""
    extents = side_by_side([count * datatype.size for count, _ in listed])
    if buffer is not MPI.BOTTOM and not is_host(buffer):
        return _packed_on_device(buffer, listed, datatype, extents)
    from .packing import packing  # few programs need it

    array = np.empty(sum(size for _, size in extents), np.uint8)
    view = BufferView(array, extents, None)
    for (count, displ), (start, size) in zip(listed, extents):
        for pack, unpack in packing(buffer, displ, count, datatype, array[start : start + size]):
            view.load.append(pack)
            view.store.append(unpack)
    return view


def _packed_on_device(
    memory: Array, listed: list[tuple[int, int]], datatype: MPI.Datatype, extents: Extents
) -> BufferView:
    """As `_packed_at`, on a GPU, byte by byte; MPI packs byte numbers on the host to find the origin of each byte."""
    from .device_copies import by_index

    numbers = np.arange(memory.size, dtype=np.int32 if memory.size < 1 << 31 else np.int64)
    digits = numbers.view(np.uint8).reshape(-1, numbers.itemsize)
    packed = []
    for digit in range(numbers.itemsize):
        one = _packed_at(np.ascontiguousarray(digits[:, digit]), listed, datatype)
        for load in one.load:
            load()
        packed.append(one.array)
    origins = np.ascontiguousarray(np.stack(packed, axis=-1)).view(numbers.dtype).reshape(-1)
    array = allocate_like(memory, origins.shape, np.uint8)
    gather, scatter = by_index(memory, array, origins)
    return BufferView(array, extents, None, [gather], [scatter, *finishing(array)])


def parse_w(spec: Any, blocks: int) -> tuple[Any, list[int], list[int], list[MPI.Datatype]]:
    """The items of a buffer of alltoallw, with a datatype for each block: ``[buf, counts, displs, types]``."""
    if not isinstance(spec, list | tuple) or not 2 <= len(spec) <= 4:
        raise ValueError("message: expecting 2 to 4 items")
    buffer, *middle, types = spec
    counts, displs = (middle[0] if len(middle) == 1 else middle) if middle else (None, None)
    if counts is None and displs is None and buffer is not MPI.BOTTOM:
        counts, displs = [1] * blocks, [0] * blocks
    if counts is None or displs is None:
        raise ValueError(f"message: counts {counts} or displs {displs} are missing")
    counts, displs = counts_array("counts", counts, blocks), counts_array("displs", displs, blocks)
    if len(types) != blocks:
        raise ValueError(f"types has {len(types)} entries, expecting {blocks} items, one for each rank")
    return buffer, counts, displs, [_datatype(given) or MPI.BYTE for given in types]


def read_view_w(name: str, spec: Any, blocks: int, writable: bool) -> BufferView:
    """Read a buffer of alltoallw."""
    buffer, *listed = parse_w(spec, blocks)
    array: Any = buffer if buffer is MPI.BOTTOM else memory(name, buffer, writable)
    views = []
    for count, displ, datatype in zip(*listed):
        if buffer is not MPI.BOTTOM:
            _check_fits(name, array.size - displ, count, 0, datatype.extent, datatype)
        if buffer is not MPI.BOTTOM and is_dense(datatype):
            views.append(BufferView(array, ((displ, count * datatype.size),), None))
        else:
            views.append(_packed_at(array, [(count, displ)], datatype))
    if all(view.array is array for view in views):
        return BufferView(array, tuple(view.extents[0] for view in views), None)
    return _joined(views)


def _joined(views: Sequence[BufferView]) -> BufferView:
    """Join blocks from several arrays in one, with copies there and back."""
    extents = side_by_side([view.extents[0][1] for view in views])
    joined = BufferView(allocate_like(views[0].array, (sum(size for _, size in extents),), np.uint8), extents, None)
    for view, (start, size) in zip(views, extents):
        old = view.extents[0][0]
        here, there = joined.array[start : start + size], view.array[old : old + size]
        joined.load += [*view.load, copying(here, there)]
        joined.store += [copying(there, here), *view.store]
    joined.store += finishing(joined.array)
    return joined
