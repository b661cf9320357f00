"""Checks the buffers of collectives between neighbors, which have a block for each neighbor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.program_key import Extents
from ..schedule.neighbors import Neighbors
from ..schedule.registry import Primitive
from .arrays import IN_PLACE, as_array
from .buffer_spec import BufferView, NeedsNativeMPI, is_unreadable, memory, parse, read_view, read_view_w
from .check_buffers import CheckedBuffers
from .memory import allocate_like
from .mpi_arguments import check_blocks_apart, check_same_dtype, in_blocks


def read_between_neighbors(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, neighbors: Neighbors, strict: bool
) -> CheckedBuffers:
    """Check the buffers of one rank; unless `strict`, None is an empty buffer and dtypes may differ, as in mpi4py."""
    try:
        return _read(primitive, sendbuf, recvbuf, neighbors, strict)
    except (TypeError, ValueError) as error:
        if not strict and (is_unreadable(sendbuf) or is_unreadable(recvbuf)):
            raise NeedsNativeMPI(f"{primitive.name} of a buffer in memory that only MPI may be able to read") from error
        raise


def _read(primitive: Primitive, sendbuf: Any, recvbuf: Any, neighbors: Neighbors, strict: bool) -> CheckedBuffers:
    for name, spec in (("sendbuf", sendbuf), ("recvbuf", recvbuf)):
        if spec is IN_PLACE:
            raise ValueError(f"{name}=MPI.IN_PLACE is not allowed in {primitive.name}")
    incoming, outgoing, *_ = neighbors
    if strict and sendbuf is None:
        raise TypeError(f"sendbuf=None: {primitive.name} needs a send buffer")
    vector = primitive.varies and primitive.takes_all
    send = _blocks("sendbuf", sendbuf, len(outgoing) if primitive.takes_all else 1, primitive, vector, False)
    result = _allocated(primitive, sendbuf, recvbuf, send, neighbors) if strict else recvbuf
    recvbuf = [_first(result), *recvbuf[1:]] if isinstance(recvbuf, list | tuple) else result
    recv = _blocks("recvbuf", recvbuf, len(incoming), primitive, primitive.varies, True)
    if strict and not primitive.name.endswith("w"):
        check_same_dtype(sendbuf, recvbuf, send, recv)
    sends = send.extents if primitive.takes_all else send.extents * len(outgoing)  # of an all-gather, always the same
    _check_edges_to_itself(sends, recv.extents, neighbors)
    if not primitive.takes_all:
        _check_repeated_blocks(recv.extents, neighbors)
    check_blocks_apart(send, recv)
    # blocks that nobody sends stay as they are, so they are packed, too
    return in_blocks(send, recv, sends, _first(result), False, loads=None in incoming)


def _first(spec: Any) -> Any:
    return spec[0] if isinstance(spec, list | tuple) else spec


def _blocks(name: str, spec: Any, count: int, primitive: Primitive, vector: bool, writable: bool) -> BufferView:
    if count == 0:  # there are no neighbors
        buffer = _first(spec)
        return BufferView(memory(name, buffer, writable), (), None if buffer is None else as_array(name, buffer).dtype)
    if primitive.name.endswith("w"):
        return read_view_w(name, spec, count, writable)
    return read_view(name, spec, count, writable, vector=vector)


def _allocated(primitive: Primitive, sendbuf: Any, recvbuf: Any, send: BufferView, neighbors: Neighbors) -> Any:
    """The receive buffer, allocated if the caller gave none."""
    if primitive.varies:
        return _allocated_by_counts(primitive, recvbuf, send)
    if recvbuf is not None:
        return recvbuf
    if send.dtype is None or isinstance(sendbuf, list | tuple):
        raise TypeError(f"recvbuf=None: {primitive.name} needs a receive buffer for elements of a datatype")
    incoming, outgoing = len(neighbors.incoming), len(neighbors.outgoing)
    shape, block = np.shape(sendbuf), sum(size for _, size in send.extents) // send.dtype.itemsize
    if primitive.takes_all and incoming and not outgoing:
        raise TypeError(
            f"recvbuf=None: {primitive.name} on a rank that only receives does not know the length of blocks"
        )
    if primitive.takes_all:
        block //= max(outgoing, 1)
        shape = shape[1:] if len(shape) > 1 and shape[0] == outgoing else (block,)
    return allocate_like(send.array, (incoming, *shape), send.dtype)


def _allocated_by_counts(primitive: Primitive, recvbuf: Any, send: BufferView) -> Any:
    if not isinstance(recvbuf, list | tuple):
        if recvbuf is None:
            raise TypeError(f"recvbuf=None: {primitive.name} needs a receive buffer, or [None, counts]")
        return recvbuf
    if recvbuf and recvbuf[0] is None and send.dtype and not primitive.name.endswith("w"):
        _, counts, displs, datatype = parse(recvbuf, vector=True)
        if counts is not None and displs is None and datatype is None:
            return allocate_like(send.array, (int(np.sum(counts)),), send.dtype)
    return recvbuf


def _check_edges_to_itself(sends: Extents, recvs: Extents, neighbors: Neighbors) -> None:
    sent = {edge: size for edge, (_, size) in zip(neighbors.outgoing, sends) if edge}
    for edge, (_, size) in zip(neighbors.incoming, recvs):
        if edge and edge.source == edge.to and sent[edge] != size:
            raise ValueError(
                f"rank {edge.to} sends {sent[edge]} bytes to itself (sendbuf), but receives {size} (recvbuf)"
            )


def _check_repeated_blocks(recvs: Extents, neighbors: Neighbors) -> None:
    """Check that blocks of an all-gather from one rank, along several edges, have the same length."""
    first: dict[int, int] = {}
    for edge, (_, size) in zip(neighbors.incoming, recvs):
        if edge and size != (expected := first.setdefault(edge.source, size)):
            raise ValueError(
                f"recvbuf: blocks from rank {edge.source} have {expected} and {size} bytes, but it sends the same "
                "block along all its edges"
            )
