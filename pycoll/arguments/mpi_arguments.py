"""Checks buffer specifications of mpi4py: for the methods of a communicator, and for the v-variants."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from ..compiler.program_key import Extents
from ..schedule.registry import Primitive
from .arrays import IN_PLACE, as_array
from .buffer_spec import BufferView, NeedsNativeMPI, is_unreadable, parse, read_view, read_view_w, spans
from .check_buffers import (
    CheckedBuffers,
    check_apart,
    check_buffers,
    copied,
    counts_array,
    is_same,
    refuse_to_scatter_in_place,
    result_shape,
)
from .device_arrays import is_device_array
from .memory import allocate_like, bounds, is_host


def read(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any = None
) -> CheckedBuffers:
    """Read the arguments of a method of a communicator, as in mpi4py: None means MPI.IN_PLACE where it is allowed.

    Raises NeedsNativeMPI if a buffer is in memory that neither NumPy nor CuPy can read, even if there are other errors.
    Each rank decides this for its own buffers: all ranks of a call must have such a buffer, or none.
    """
    try:
        return _read(primitive, sendbuf, recvbuf, rank, size, root, recvcounts)
    except (TypeError, ValueError) as error:
        if is_unreadable(sendbuf) or is_unreadable(recvbuf):
            raise NeedsNativeMPI(f"{primitive.name} of a buffer in memory that only MPI may be able to read") from error
        raise


def _read(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any
) -> CheckedBuffers:
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
        try:
            checked = check_buffers(primitive, sendbuf, recvbuf, rank, size, root)
            checked.elements = elements_of(checked.dtype)
            return checked
        except (TypeError, ValueError):
            pass  # MPI may accept them: for example arrays of different dtypes with the same number of bytes
    return _read_simple(primitive, sendbuf, recvbuf, rank, size, root, recvcounts)


def _parts_of(primitive: Primitive, rank: int, size: int, root: int) -> tuple[bool, bool]:
    """Whether a rank has a send buffer, and whether it has a receive buffer."""
    gives = bool(primitive.holds(rank, size, root, size)) and primitive.name != "bcast"
    return gives, bool(primitive.wants(rank, size, root, size)) or primitive.name == "exscan"


def _plain(buffer: Any) -> bool:
    if type(buffer) is np.ndarray or is_device_array(buffer):
        return bool(buffer.flags.c_contiguous)
    return buffer is None or buffer is IN_PLACE


def _read_simple(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any
) -> CheckedBuffers:
    refuse_to_scatter_in_place(primitive, sendbuf, rank == root)
    gives, gets = _parts_of(primitive, rank, size, root)
    in_place = sendbuf is IN_PLACE and gets and gives
    stays = recvbuf is IN_PLACE and primitive.name == "scatter" and rank == root
    send = recv = None
    if gives and not in_place:
        blocks = size if primitive.takes_all and recvcounts is None else 1
        send = read_view("sendbuf", sendbuf, blocks, writable=False, typed=primitive.reduces)
    if gets and not stays:
        blocks = size if (primitive.gives_all or (in_place and primitive.takes_all)) and recvcounts is None else 1
        writable = primitive.name != "bcast" or rank != root
        recv = read_view("recvbuf" if gives else "buf", recvbuf, blocks, writable, typed=primitive.reduces)
    if primitive.reduces:
        return _reduction(primitive, send, recv, rank, size, root, recvcounts)
    before = [*(send.load if send else []), *(recv.load if recv and (in_place or primitive.name == "bcast") else [])]
    sent = IN_PLACE if in_place else send.whole() if send else None
    received = IN_PLACE if stays else recv.whole() if recv else None
    arguments = check_buffers(primitive, sent, received, rank, size, root)
    arguments.before = [*before, *arguments.before]
    arguments.after = recv.store if recv and not (primitive.name == "bcast" and rank == root) else []
    arguments.result = None
    arguments.elements = elements_of(*(view.dtype for view in (send, recv) if view))
    return arguments


def elements_of(*dtypes: np.dtype | None) -> str:
    """The first of these dtypes, for comparing it across ranks; any may be moved as single bytes."""
    return next((str(dtype) for dtype in dtypes if dtype and dtype.itemsize > 1), "")


def _reduction(
    primitive: Primitive,
    send: BufferView | None,
    recv: BufferView | None,
    rank: int,
    size: int,
    root: int,
    recvcounts: Any,
) -> CheckedBuffers:
    """Check the buffers of a reduction."""
    for view in (send, recv):
        if view and not is_host(view.array) and (view.dtype is None or is_opaque(view.dtype)):
            raise TypeError(f"{primitive.name} of elements without a NumPy dtype is not supported in GPU memory")
        if view and view.dtype is None:
            raise NeedsNativeMPI(f"{primitive.name} of elements without a NumPy dtype")
    if send and recv and send.dtype != recv.dtype:
        raise ValueError(
            f"mismatch in send and receive MPI datatypes: sendbuf has dtype {send.dtype}, recvbuf {recv.dtype}"
        )
    arrays: list[Any] = [view.whole().view(view.dtype) if view else None for view in (send, recv)]
    if send is None:
        arrays[0] = IN_PLACE
    elif recv and primitive.cuts and arrays[0].size != arrays[1].size:
        raise ValueError(f"mismatch in send count {arrays[0].size} and receive count {arrays[1].size}")
    arguments = check_buffers(primitive, arrays[0], arrays[1], rank, size, root, recvcounts)
    arguments.result = None
    return arguments


def is_opaque(dtype: np.dtype) -> bool:
    """Whether elements are opaque bytes, of a derived datatype."""
    return dtype.type is np.void and dtype.names is None


def names_datatype(*buffers: Any) -> bool:
    """Whether one of these buffers is a list that ends with a datatype."""
    return any(isinstance(one, list | tuple) and one and isinstance(one[-1], MPI.Datatype) for one in buffers)


def read_elements(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any = None
) -> CheckedBuffers:
    """Read the arguments of a function that reduces elements of a datatype, which `sendbuf` names: ``[buf, type]``.

    If `recvbuf` is an array, its elements have the same datatype; None allocates one.
    """
    datatype = named_datatype(sendbuf, recvbuf)
    if datatype is None:
        raise TypeError("recvbuf names a datatype, but sendbuf does not")
    _, gets = _parts_of(primitive, rank, size, root)
    result = parse(recvbuf, vector=False).buffer
    if gets and sendbuf is not IN_PLACE:
        array = as_array("sendbuf", parse(sendbuf, vector=False).buffer)
        if result is None:
            shape = result_shape(primitive, array.shape, array.size, size)
            if recvcounts is not None:
                count = counts_array("recvcounts", recvcounts, size)[rank]
                shape = (count * datatype.extent // array.itemsize,)
            result = allocate_like(array, shape)
    if not isinstance(recvbuf, list | tuple):
        recvbuf = [result, datatype]
    try:
        checked = _read_simple(primitive, sendbuf, recvbuf, rank, size, root, recvcounts)
    except NeedsNativeMPI as why:
        raise TypeError(f"{why} is supported only by the methods of pycoll.Comm") from None
    if sendbuf is IN_PLACE and primitive.takes_all:
        array = as_array("recvbuf", result).reshape(-1)
        result = array[: checked.count * datatype.extent // array.itemsize]
    checked.result = result if gets and (primitive.name != "exscan" or rank) else None
    return checked


def read_varying(
    primitive: Primitive,
    sendbuf: Any,
    recvbuf: Any,
    rank: int,
    size: int,
    root: int,
    recvcounts: Any = None,
    strict: bool = True,
) -> CheckedBuffers:
    """Read the buffers of a v-variant; unless `strict`, None is an empty buffer and dtypes may differ, as in mpi4py."""
    refuse_to_scatter_in_place(primitive, sendbuf, rank == root)
    gives, gets = _parts_of(primitive, rank, size, root)
    in_place = sendbuf is IN_PLACE and gets
    stays = recvbuf is IN_PLACE and primitive.name == "scatterv" and gives
    send = recv = None
    if gives and not in_place:
        if strict and sendbuf is None:
            raise TypeError(f"sendbuf=None: {primitive.name} needs a send buffer on rank {rank}")
        send = _read_blocks("sendbuf", sendbuf, size, primitive.takes_all, primitive.name, False)
    result = recvbuf
    if gets and not stays:
        recvbuf, result = _allocated(primitive, recvbuf, send, rank, size)
        recv = _read_blocks("recvbuf", recvbuf, size, primitive.gives_all, primitive.name, True)
    extents = None if recv is None else recv.extents
    sends = extents if in_place else None if send is None else send.extents
    if send and recv:
        if strict and primitive.name != "alltoallw":
            check_same_dtype(sendbuf, recvbuf, send, recv)
        _check_own_block(primitive, send, recv, rank)
        if is_same(send.array, recv.array) and send.extents == recv.extents:
            send.array = copied(send.array, send.load)
        check_blocks_apart(send, recv)
    else:
        _check_disjoint(extents)
    result = None if stays or not gets else result
    return in_blocks(send, recv, sends or (), result, in_place or stays, loads=in_place)


def in_blocks(
    send: BufferView | None, recv: BufferView | None, sends: Extents, result: Any, in_place: bool, loads: bool
) -> CheckedBuffers:
    """The buffers of a call that moves blocks of bytes; `loads` is whether the receive buffer is packed before it."""
    return CheckedBuffers(
        None if send is None else send.array,
        None if recv is None else recv.array,
        0,
        np.dtype(np.uint8),
        in_place,
        result,
        sends,
        () if recv is None else recv.extents,
        before=[*(send.load if send else []), *(recv.load if recv and loads else [])],
        after=recv.store if recv else [],
        elements=elements_of(*(view.dtype for view in (send, recv) if view)),
    )


def _read_blocks(name: str, spec: Any, size: int, all_blocks: bool, primitive: str, writable: bool) -> BufferView:
    if primitive == "alltoallw":
        return read_view_w(name, spec, size, writable)
    return read_view(name, spec, size if all_blocks else 1, writable, vector=all_blocks)


def _allocated(primitive: Primitive, recvbuf: Any, send: BufferView | None, rank: int, size: int) -> tuple[Any, Any]:
    """The specification of the receive buffer, and the result; allocated if only counts were passed."""
    if isinstance(recvbuf, list | tuple) and primitive.name == "alltoallw":
        return recvbuf, recvbuf[0]
    if isinstance(recvbuf, list | tuple):
        buffer, counts, displs, _ = parse(recvbuf, vector=True)
        if buffer is None and counts is not None and primitive.gives_all and send and send.dtype:
            listed = spans(counts, displs, size, vector=True)
            allocated = allocate_like(send.array, (max(displ + count for count, displ in listed),), send.dtype)
            allocated.view(np.uint8)[...] = 0
            return [allocated, *recvbuf[1:]], allocated
        return recvbuf, recvbuf[0]
    if recvbuf is None and primitive.name == "scatterv" and send and send.dtype:
        allocated = allocate_like(send.array, (send.extents[rank][1] // send.dtype.itemsize,), send.dtype)
        return allocated, allocated
    if recvbuf is None:
        raise TypeError(f"recvbuf=None: {primitive.name} needs a receive buffer, or [None, counts]")
    return recvbuf, recvbuf


def check_same_dtype(sendbuf: Any, recvbuf: Any, send: BufferView, recv: BufferView) -> None:
    """Raise TypeError if arrays that were passed without a datatype have different dtypes."""
    named = any(parse(spec, vector=True).datatype for spec in (sendbuf, recvbuf))
    if not named and send.dtype and recv.dtype and send.dtype != recv.dtype:
        raise TypeError(f"sendbuf has dtype {send.dtype}, recvbuf has dtype {recv.dtype}")


def _check_own_block(primitive: Primitive, send: BufferView, recv: BufferView, rank: int) -> None:
    sent = send.extents[rank if primitive.takes_all else 0][1]
    expected = recv.extents[rank if primitive.gives_all else 0][1]
    if sent != expected:
        raise ValueError(f"rank {rank} sends {sent} bytes to itself (sendbuf), but receives {expected} (recvbuf)")


def check_blocks_apart(send: BufferView, recv: BufferView) -> None:
    """Raise ValueError if a received block overlaps a sent one, or another received one."""
    _check_disjoint(recv.extents)
    (ours, end), (theirs, last) = bounds(send.array), bounds(recv.array)
    if ours >= last or theirs >= end:
        return
    for start, size in send.extents:
        for other, length in recv.extents:
            if size and length:
                check_apart(send.array[start : start + size], recv.array[other : other + length])


def _check_disjoint(extents: Extents | None) -> None:
    """Raise ValueError if received blocks overlap."""
    end = 0
    for start, size in sorted(extent for extent in extents or () if extent[1]):
        if start < end:
            raise ValueError(
                f"the blocks of recvbuf overlap: one starts at byte {start}, before another ends at byte {end}"
            )
        end = start + size


def named_datatype(sendbuf: Any, recvbuf: Any) -> MPI.Datatype | None:
    """The datatype that the arguments of a reduction name; None if they name none."""
    return parse(recvbuf if sendbuf is IN_PLACE or sendbuf is None else sendbuf, vector=False).datatype
