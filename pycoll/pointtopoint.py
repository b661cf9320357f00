"""Point to point: thin functions on the caller's own communicator, with the collectives' buffer handling.

Buffers may have any shape and any dtype but object; ``comm=None`` is COMM_WORLD.  A wrong type raises
TypeError, a receive buffer that is read-only or not C-contiguous ValueError, and what MPI refuses (ranks and
tags out of range, messages that are too long) MPI.Exception.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .buffers import check_apart, recv_array, send_array
from .counters import count
from .progress import flights, until


def _spec(array: np.ndarray) -> list:
    """The array as mpi4py takes it; dtypes that MPI has no type for travel as bytes."""
    try:
        datatype = MPI.Datatype.fromcode(array.dtype.char) if array.dtype.isnative else MPI.BYTE
    except (KeyError, ValueError):
        datatype = MPI.BYTE
    if datatype in (MPI.BYTE, MPI.DATATYPE_NULL) or datatype.size != array.itemsize:
        return [array.reshape(-1).view(np.uint8), MPI.BYTE]
    return [array, datatype]


def _world(comm: MPI.Comm | None) -> MPI.Comm:
    if comm is not None and not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm must be a communicator, not {comm!r}")
    return MPI.COMM_WORLD if comm is None else comm


def _count(array: np.ndarray, dest: int, comm: MPI.Comm | None) -> None:
    if dest not in (MPI.PROC_NULL, _world(comm).rank):
        count(array.nbytes)


def _finish(request: MPI.Request, status: MPI.Status | None = None) -> None:
    """Wait while collectives in flight go on."""
    until(lambda: request.Test(status))


def send(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> None:
    """Send `buf` (an array, or anything with the buffer protocol) to rank `dest`.

    Returns when `buf` may be written again; a buffer with gaps is packed.  As MPI_Send in the MPI standard.
    """
    if flights:
        return _finish(isend(buf, dest, tag, comm=comm))
    array = send_array("buf", buf)
    _world(comm).Send(_spec(array), dest, tag)
    _count(array, dest, comm)


def recv(
    buf: Any,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    status: MPI.Status | None = None,
    *,
    comm: MPI.Comm | None = None,
) -> Any:
    """Receive into `buf`, at most as many elements as it has; returns `buf`.

    `status` tells source, tag and count.  As MPI_Recv in the MPI standard.
    """
    if flights:
        _finish(irecv(buf, source, tag, comm=comm), status)
    else:
        _world(comm).Recv(_spec(recv_array("buf", buf)), source, tag, status)
    return buf


def isend(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> MPI.Request:
    """Start sending `buf`; it must stay as it is until the request that is returned is complete.

    As MPI_Isend in the MPI standard.
    """
    array = send_array("buf", buf)
    request = _world(comm).Isend(_spec(array), dest, tag)
    _count(array, dest, comm)
    return request


def irecv(
    buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, *, comm: MPI.Comm | None = None
) -> MPI.Request:
    """Start receiving into `buf`; it holds the message once the request that is returned is complete.

    As MPI_Irecv in the MPI standard.
    """
    return _world(comm).Irecv(_spec(recv_array("buf", buf)), source, tag)


def sendrecv(
    sendbuf: Any,
    dest: int,
    sendtag: int = 0,
    recvbuf: Any = None,
    source: int = MPI.ANY_SOURCE,
    recvtag: int = MPI.ANY_TAG,
    status: MPI.Status | None = None,
    *,
    comm: MPI.Comm | None = None,
) -> Any:
    """Send one buffer and receive another at the same time; returns `recvbuf`.

    With recvbuf=None an array like `sendbuf` is allocated; the two must not overlap.  As MPI_Sendrecv in the
    MPI standard.
    """
    outgoing = send_array("sendbuf", sendbuf)
    recvbuf = np.empty_like(outgoing) if recvbuf is None else recvbuf
    incoming = recv_array("recvbuf", recvbuf)
    check_apart(outgoing, incoming)
    if flights:
        coming = irecv(recvbuf, source, recvtag, comm=comm)
        _finish(isend(outgoing, dest, sendtag, comm=comm))
        _finish(coming, status)
        return recvbuf
    _world(comm).Sendrecv(_spec(outgoing), dest, sendtag, _spec(incoming), source, recvtag, status)
    _count(outgoing, dest, comm)
    return recvbuf
