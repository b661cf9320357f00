"""mpi4py's buffer specifications: ``buf``, ``[buf, type]``, ``[buf, count, type]``, ``[buf, (counts, displs), type]``.

They are read as mpi4py reads them (its ``msgbuffer.pxi``), and become memory and the places of blocks in it.
Counts and displacements are in elements of the datatype, for alltoallw displacements in bytes.  Blocks of a datatype
with gaps are packed into memory of their own before a collective and unpacked after it, by messages to oneself.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from .buffers import IN_PLACE, Action, Arguments, arrange, as_array, check_apart, counts_array
from .layout import Extents, side_by_side
from .schedule import Primitive


class Unserved(Exception):
    """Only MPI's own collective can do this: reduce elements that NumPy has no dtype for, or reach a GPU's memory."""


class Spec(NamedTuple):
    """The items of a specification."""

    buffer: Any
    counts: Any
    displs: Any
    datatype: MPI.Datatype | None


def parse(spec: Any, vector: bool) -> Spec:
    """The items of a specification; ValueError or TypeError, with mpi4py's words, if there are too few or too many."""
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
    if given is None or isinstance(given, MPI.Datatype):
        return given
    try:
        return MPI.Datatype.fromcode(given)
    except ValueError:
        raise KeyError(f"cannot map {given!r} to MPI datatype") from None


# quadruple precision, for whose size and code NumPy has another type
_WITHOUT_DTYPE = [datatype for datatype in (MPI.REAL16, MPI.COMPLEX32) if datatype != MPI.DATATYPE_NULL]

# MPI's types for MINLOC and MAXLOC, with the type of their values; the index is an int
_PAIRS = [
    (MPI.FLOAT_INT, "f"),
    (MPI.DOUBLE_INT, "d"),
    (MPI.LONG_INT, "l"),
    (MPI.TWOINT, "i"),
    (MPI.SHORT_INT, "h"),
    (MPI.LONG_DOUBLE_INT, "g"),
]


def dtype_of(datatype: MPI.Datatype) -> np.dtype | None:
    """The NumPy dtype of an MPI datatype's elements; None if it has none."""
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


def is_dense(datatype: MPI.Datatype) -> bool:
    """Whether elements lie side by side without gaps, in the order in which they are sent."""
    if datatype.is_predefined:
        return datatype.size == datatype.extent
    if datatype.combiner in (MPI.COMBINER_DUP, MPI.COMBINER_CONTIGUOUS):
        return is_dense(datatype.decode()[0])
    return False


def memory(name: str, buffer: Any, writable: bool) -> np.ndarray:
    """The bytes of a contiguous buffer, in the order of their addresses."""
    if buffer is None:
        return np.empty(0, np.uint8)
    if hasattr(buffer, "__cuda_array_interface__"):
        raise Unserved(f"{name} lies on a GPU")
    array = as_array(name, buffer)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(f"{name} is not contiguous (shape {array.shape}, strides {array.strides})")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name} is read-only")
    return array.ravel(order="K").view(np.uint8)


@dataclass
class Side:
    """The input or the output of a call: memory, the places of its blocks in bytes, packing and unpacking."""

    array: np.ndarray
    places: Extents
    dtype: np.dtype | None  # of the elements, if NumPy has one
    load: list[Action] = field(default_factory=list)
    store: list[Action] = field(default_factory=list)


@cache
def _self() -> MPI.Intracomm:
    return MPI.COMM_SELF.Dup()


def _copy(source: list, to: list) -> None:
    """Copy by a message to oneself, which understands every datatype."""
    _self().Sendrecv(source, 0, 0, to, 0, 0)


def read_side(name: str, spec: Any, blocks: int, writable: bool, vector: bool = False, typed: bool = False) -> Side:
    """A buffer of so many blocks; with `vector` each has a count and a displacement of its own.

    Elements with gaps are packed, unless they are to be combined as the NumPy dtype that they have (`typed`).
    """
    buffer, counts, displs, datatype = parse(spec, vector)
    if buffer is MPI.BOTTOM:
        counts = 0 if counts is None else counts
        return _packed(MPI.BOTTOM, _listed(counts, displs, blocks, vector, 1), datatype)
    array = memory(name, buffer, writable)
    dtype = as_array(name, buffer).dtype if buffer is not None else None
    extent = datatype.extent if datatype else dtype.itemsize if dtype else 1
    if counts is None:
        counts = _infer(name, array.size, extent, displs, blocks, vector)
    listed = _listed(counts, displs, blocks, vector, extent)
    if datatype:
        dtype = dtype_of(datatype)
    if datatype and not is_dense(datatype) and not (typed and dtype):
        side = _packed(array, listed, datatype)
    else:
        side = Side(array, tuple((displ * extent, count * extent) for count, displ in listed), dtype)
    for count, displ in listed:
        _check_fits(name, array.size, count, displ, extent, datatype)
    return side


def elements(name: str, spec: Any) -> int:
    """How many elements a buffer has."""
    buffer, counts, displs, datatype = parse(spec, vector=False)
    if counts is not None:
        return operator.index(counts)
    array = memory(name, buffer, writable=False)
    extent = datatype.extent if datatype else as_array(name, buffer).dtype.itemsize
    return _infer(name, array.size, extent, displs, 1, vector=False)


def _infer(name: str, nbytes: int, extent: int, displs: Any, blocks: int, vector: bool) -> Any:
    """The count of elements in each block, if the specification says nothing of it."""
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


def _listed(counts: Any, displs: Any, blocks: int, vector: bool, extent: int) -> list[tuple[int, int]]:
    """(count, displacement) in elements of each block."""
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


def _packed(buffer: Any, listed: list[tuple[int, int]], datatype: MPI.Datatype | None) -> Side:
    """Blocks of a datatype with gaps, by way of memory without."""
    if datatype is None:
        raise ValueError("message: cannot infer count, datatype is null")
    return _packed_at(buffer, [(count, displ * datatype.extent) for count, displ in listed], datatype)


def _packed_at(buffer: Any, listed: list[tuple[int, int]], datatype: MPI.Datatype) -> Side:
    """The same, with displacements in bytes."""
    places = side_by_side([count * datatype.size for count, _ in listed])
    array = np.empty(sum(size for _, size in places), np.uint8)
    side = Side(array, places, None)
    for (count, displ), (start, size) in zip(listed, places):
        if count:
            inside = [array[start : start + size], MPI.PACKED]
            outside = _elements(buffer, displ, count, datatype)
            side.load.append(partial(_copy, outside, inside))
            side.store.append(partial(_copy, inside, outside))
    return side


def _elements(buffer: Any, start: int, count: int, datatype: MPI.Datatype) -> list:
    """So many elements from byte `start` on; mpi4py itself takes no displacement from MPI.BOTTOM."""
    if buffer is not MPI.BOTTOM:
        return [buffer[start:], count, datatype]
    return [buffer, 1, datatype.Create_hindexed([count], [start]).Commit()] if start else [buffer, count, datatype]


def read_side_w(name: str, spec: Any, blocks: int, writable: bool) -> Side:
    """A buffer whose blocks have datatypes of their own, for alltoallw: ``[buf, counts, displs, types]``."""
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
    array: Any = buffer if buffer is MPI.BOTTOM else memory(name, buffer, writable)
    sides = []
    for count, displ, given in zip(counts, displs, types):
        datatype = _datatype(given) or MPI.BYTE
        if buffer is not MPI.BOTTOM:
            _check_fits(name, array.size - displ, count, 0, datatype.extent, datatype)
        if buffer is not MPI.BOTTOM and is_dense(datatype):
            sides.append(Side(array, ((displ, count * datatype.size),), None))
        else:
            sides.append(_packed_at(array, [(count, displ)], datatype))
    if all(side.array is array for side in sides):
        return Side(array, tuple(side.places[0] for side in sides), None)
    return _joined(sides)


def _joined(sides: Sequence[Side]) -> Side:
    """Blocks of several memories in one, copied there and back."""
    places = side_by_side([side.places[0][1] for side in sides])
    joined = Side(np.empty(sum(size for _, size in places), np.uint8), places, None)
    for side, (start, size) in zip(sides, places):
        old = side.places[0][0]
        here, there = joined.array[start : start + size], side.array[old : old + size]
        joined.load += [*side.load, partial(np.copyto, here, there)]
        joined.store += [partial(np.copyto, there, here), *side.store]
    return joined


def _whole(side: Side) -> np.ndarray:
    """The memory of blocks that lie side by side."""
    start, end = side.places[0][0], sum(side.places[-1])
    return side.array[start:end]


def read(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any = None
) -> Arguments:
    """The arguments of a communicator's method, as mpi4py takes them: None means MPI.IN_PLACE where that may be."""
    gives, gets = _parts_of(primitive, rank, size, root)
    if gives and gets and primitive.takes_all and primitive.rooted:
        recvbuf = IN_PLACE if recvbuf is None else recvbuf
    elif gives and gets:
        sendbuf = IN_PLACE if sendbuf is None else sendbuf
    if gets and recvbuf is None:
        raise TypeError(f"message: expecting buffer or list/tuple: recvbuf=None on rank {rank}")
    if primitive.varies:
        return read_varying(primitive, sendbuf, recvbuf, rank, size, root, strict=False)
    if primitive.name == "barrier" or (recvcounts is None and _plain(sendbuf) and _plain(recvbuf)):
        same = sendbuf is not None and recvbuf is not None and _address(sendbuf) == _address(recvbuf)
        if not (same and primitive.reduces):
            try:
                return arrange(primitive, sendbuf, recvbuf, rank, size, root)
            except (TypeError, ValueError):
                pass  # such as arrays of other dtypes with as many bytes, which MPI does not see
    return _read_simple(primitive, sendbuf, recvbuf, rank, size, root, recvcounts)


def _parts_of(primitive: Primitive, rank: int, size: int, root: int) -> tuple[bool, bool]:
    """Whether a rank has a send buffer, and whether it has a receive buffer."""
    gives = bool(primitive.holds(rank, size, root, size)) and primitive.name != "bcast"
    return gives, bool(primitive.wants(rank, size, root, size)) or primitive.name == "exscan"


def _plain(buffer: Any) -> bool:
    return buffer is None or buffer is IN_PLACE or (type(buffer) is np.ndarray and buffer.flags.c_contiguous)


def _address(buffer: Any) -> int | None:
    return MPI.Get_address(buffer) if type(buffer) is np.ndarray and buffer.size else None


def _read_simple(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any
) -> Arguments:
    gives, gets = _parts_of(primitive, rank, size, root)
    inside = sendbuf is IN_PLACE and gets and gives
    stays = recvbuf is IN_PLACE and primitive.name == "scatter" and rank == root
    send = recv = None
    if gives and not inside:
        blocks = size if primitive.takes_all and recvcounts is None else 1
        send = read_side("sendbuf", sendbuf, blocks, writable=False, typed=primitive.reduces)
    if gets and not stays:
        blocks = size if (primitive.gives_all or (inside and primitive.takes_all)) and recvcounts is None else 1
        writable = primitive.name != "bcast" or rank != root
        recv = read_side("recvbuf" if gives else "buf", recvbuf, blocks, writable, typed=primitive.reduces)
    if primitive.reduces:
        return _reduction(primitive, send, recv, rank, size, root, recvcounts)
    before = [*(send.load if send else []), *(recv.load if recv and (inside or primitive.name == "bcast") else [])]
    arguments = arrange(
        primitive,
        IN_PLACE if inside else _whole(send) if send else None,
        IN_PLACE if stays else _whole(recv) if recv else None,
        rank,
        size,
        root,
    )
    arguments.before = before
    arguments.after = recv.store if recv and not (primitive.name == "bcast" and rank == root) else []
    arguments.result = None
    return arguments


def _reduction(
    primitive: Primitive, send: Side | None, recv: Side | None, rank: int, size: int, root: int, recvcounts: Any
) -> Arguments:
    """As typed arrays; a send buffer that is the receive buffer means MPI.IN_PLACE, as in later mpi4py."""
    for side in (send, recv):
        if side and side.dtype is None:
            raise Unserved(primitive.name)
    if send and recv and send.dtype != recv.dtype:
        raise ValueError(
            f"mismatch in send and receive MPI datatypes: sendbuf has dtype {send.dtype}, recvbuf {recv.dtype}"
        )
    arrays: list[Any] = [_whole(side).view(side.dtype) if side else None for side in (send, recv)]
    if send is None:
        arrays[0] = IN_PLACE
    elif recv and primitive.cuts and arrays[0].size != arrays[1].size:
        raise ValueError(f"mismatch in send count {arrays[0].size} and receive count {arrays[1].size}")
    elif recv and arrays[0].size and arrays[1].size and _address(arrays[0]) == _address(arrays[1]):
        arrays = [IN_PLACE, max(arrays, key=len)]
    arguments = arrange(primitive, arrays[0], arrays[1], rank, size, root, recvcounts)
    arguments.result = None
    return arguments


def read_varying(
    primitive: Primitive,
    sendbuf: Any,
    recvbuf: Any,
    rank: int,
    size: int,
    root: int,
    recvcounts: Any = None,
    strict: bool = True,
) -> Arguments:
    """The arguments of a v-variant; not `strict`, None is an empty buffer and dtypes may differ, as in mpi4py."""
    gives, gets = _parts_of(primitive, rank, size, root)
    inside = sendbuf is IN_PLACE and gets
    stays = recvbuf is IN_PLACE and primitive.name == "scatterv" and gives
    send = recv = None
    if gives and not inside:
        if strict and sendbuf is None:
            raise TypeError(f"sendbuf=None: {primitive.name} needs a send buffer on rank {rank}")
        send = _read_blocks("sendbuf", sendbuf, size, primitive.takes_all, primitive.name, False)
    result = recvbuf
    if gets and not stays:
        recvbuf, result = _allocated(primitive, recvbuf, send, rank, size)
        recv = _read_blocks("recvbuf", recvbuf, size, primitive.gives_all, primitive.name, True)
    places = None if recv is None else recv.places
    sends = places if inside else None if send is None else send.places
    if send and recv:
        if strict and primitive.name != "alltoallw":
            _check_dtypes(sendbuf, recvbuf, send, recv)
        _check_own_block(primitive, send, recv, rank)
        _check_apart(send, recv)
    _check_disjoint(places)
    return Arguments(
        None if send is None else send.array,
        None if recv is None else recv.array,
        0,
        np.dtype(np.uint8),
        inside or stays,
        None if stays or not gets else result,
        sends or (),
        places or (),
        before=[*(send.load if send else []), *(recv.load if recv and inside else [])],
        after=recv.store if recv else [],
    )


def _read_blocks(name: str, spec: Any, size: int, all_blocks: bool, primitive: str, writable: bool) -> Side:
    if primitive == "alltoallw":
        return read_side_w(name, spec, size, writable)
    return read_side(name, spec, size if all_blocks else 1, writable, vector=all_blocks)


def _allocated(primitive: Primitive, recvbuf: Any, send: Side | None, rank: int, size: int) -> tuple[Any, Any]:
    """The receive buffer's specification and the result; memory for it where there is none but its counts."""
    if isinstance(recvbuf, list | tuple) and primitive.name == "alltoallw":
        return recvbuf, recvbuf[0]
    if isinstance(recvbuf, list | tuple):
        buffer, counts, displs, _ = parse(recvbuf, vector=True)
        if buffer is None and counts is not None and primitive.gives_all and send and send.dtype:
            listed = _listed(counts, displs, size, True, 1)
            room = np.zeros(max(displ + count for count, displ in listed), send.dtype)
            return [room, *recvbuf[1:]], room
        return recvbuf, recvbuf[0]
    if recvbuf is None and primitive.name == "scatterv" and send and send.dtype:
        room = np.empty(send.places[rank][1] // send.dtype.itemsize, send.dtype)
        return room, room
    if recvbuf is None:
        raise TypeError(f"recvbuf=None: {primitive.name} needs a receive buffer, or [None, counts]")
    return recvbuf, recvbuf


def _check_dtypes(sendbuf: Any, recvbuf: Any, send: Side, recv: Side) -> None:
    """TypeError if arrays without a datatype beside them differ in theirs."""
    named = any(parse(spec, vector=True).datatype for spec in (sendbuf, recvbuf))
    if not named and send.dtype and recv.dtype and send.dtype != recv.dtype:
        raise TypeError(f"sendbuf has dtype {send.dtype}, recvbuf has dtype {recv.dtype}")


def _check_own_block(primitive: Primitive, send: Side, recv: Side, rank: int) -> None:
    sent = send.places[rank if primitive.takes_all else 0][1]
    expected = recv.places[rank if primitive.gives_all else 0][1]
    if sent != expected:
        raise ValueError(
            f"rank {rank} sends itself {sent} bytes by sendbuf's counts and receives {expected} by recvbuf's"
        )


def _check_apart(send: Side, recv: Side) -> None:
    """ValueError if a block is received where one is sent from."""
    if not np.shares_memory(send.array, recv.array):
        return
    for start, size in send.places:
        for other, room in recv.places:
            if size and room:
                check_apart(send.array[start : start + size], recv.array[other : other + room])


def _check_disjoint(places: Extents | None) -> None:
    """ValueError if two blocks would be received in one place."""
    end = 0
    for start, size in sorted(place for place in places or () if place[1]):
        if start < end:
            raise ValueError(
                f"recvbuf's blocks overlap: one starts at byte {start}, before byte {end} where another ends"
            )
        end = start + size
