"""Point to point: thin functions on the caller's own communicator, with the collectives' buffer handling.

Buffers may have any shape and any dtype but object, and lie on a GPU; ``comm=None`` is COMM_WORLD.  A wrong type raises
TypeError, a receive buffer that is read-only or not C-contiguous ValueError, and what MPI refuses (ranks and
tags out of range, messages that are too long) MPI.Exception.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from ..arguments import device_copies, streams
from ..arguments.arrays import Array, recv_array, send_array
from ..arguments.check_buffers import check_apart
from ..arguments.memory import allocate_like, is_host
from ..base.counters import count
from ..runtime.gpu.memory import is_direct
from ..runtime.progress import tasks, until


def _spec(array: Array) -> list[Any]:
    """The array as mpi4py takes it; dtypes that MPI has no type for travel as bytes."""
    try:
        datatype = MPI.Datatype.fromcode(array.dtype.char) if array.dtype.isnative else MPI.BYTE
    except (KeyError, ValueError):
        datatype = MPI.BYTE
    if datatype in (MPI.BYTE, MPI.DATATYPE_NULL) or datatype.size != array.itemsize:
        datatype = MPI.BYTE
    if not is_host(array):
        return [MPI.buffer.fromaddress(array.data.ptr, array.nbytes), datatype]
    return [array.reshape(-1).view(np.uint8) if datatype == MPI.BYTE else array, datatype]


class _OnDevice(MPI.Request):
    """A request for a message from or to a GPU: it keeps the array, and takes what has come there if it must."""

    _request: MPI.Request  # mpi4py's, which keeps the memory that was given to MPI
    _array: Array
    _stage: np.ndarray | None  # the host's memory, out of which the message is still to be copied

    def Test(self, status: MPI.Status | None = None) -> bool:
        """As mpi4py's."""
        status = MPI.Status() if status is None else status
        self._check_pending()
        done = super().Test(status)
        if done:
            self._arrive(status)
        return done

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """As mpi4py's."""
        status = MPI.Status() if status is None else status
        self._check_pending()
        super().Wait(status)
        self._arrive(status)
        return True

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """As mpi4py's."""
        return self.Test(status), None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """As mpi4py's."""
        self.Wait(status)

    def _check_pending(self) -> None:
        if self._stage is not None and self == MPI.REQUEST_NULL:
            raise RuntimeError("one of MPI's functions has completed a message to a GPU, and cannot bring it there")

    def _arrive(self, status: MPI.Status) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            _deliver(self._array, stage, status)
        self._array = None


def _kept(request: MPI.Request, array: Array, stage: np.ndarray | None = None) -> MPI.Request:
    """The request; of an array on a GPU, which MPI knows by its address alone, one that keeps it."""
    if is_host(array):
        return request
    keeping = _OnDevice(request)
    keeping._request, keeping._array, keeping._stage = request, array, stage
    return keeping


def _outgoing(name: str, buf: Any) -> tuple[Array, list[Any]]:
    """The array to be sent, and what is given to MPI: of one on a GPU, memory that is ready, or a copy of it."""
    array = send_array(name, buf)
    if is_host(array):
        return array, _spec(array)
    if not is_direct():
        return array, _spec(device_copies.to_host(array))
    streams.wait_for_caller(array.device.id)
    return array, _spec(array)


def _incoming(name: str, buf: Any) -> tuple[Array, list[Any], np.ndarray | None]:
    """The array to receive in, what is given to MPI, and the memory by whose way it goes to a GPU."""
    array = recv_array(name, buf)
    if is_host(array):
        return array, _spec(array), None
    if not is_direct():
        stage = device_copies.pinned(array.nbytes)
        return array, _spec(stage.view(array.dtype)), stage
    streams.wait_for_caller(array.device.id)
    return array, _spec(array), None


def _deliver(array: Array, stage: np.ndarray, status: MPI.Status) -> None:
    """Copy what has come to the GPU; a count that MPI cannot express is all there is room for."""
    count = status.Get_count(MPI.BYTE)
    device_copies.to_device(array, stage, array.nbytes if count == MPI.UNDEFINED else count)


def _world(comm: MPI.Comm | None) -> MPI.Comm:
    if comm is not None and not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm must be a communicator, not {comm!r}")
    return MPI.COMM_WORLD if comm is None else comm


def _count(array: Array, dest: int, comm: MPI.Comm | None) -> None:
    if dest not in (MPI.PROC_NULL, _world(comm).rank):
        count(array.nbytes)


def _finish(request: MPI.Request, status: MPI.Status | None = None) -> None:
    """Wait while collectives in flight go on."""
    until(lambda: request.Test(status), "a message")


def send(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> None:
    """Send `buf` (an array, or anything with the buffer protocol) to rank `dest`.

    Returns when `buf` may be written again; a buffer with gaps is packed.  As MPI_Send in the MPI standard.
    """
    if tasks:
        return _finish(isend(buf, dest, tag, comm=comm))
    array, spec = _outgoing("buf", buf)
    _world(comm).Send(spec, dest, tag)
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
    if tasks:
        _finish(irecv(buf, source, tag, comm=comm), status)
        return buf
    array, spec, stage = _incoming("buf", buf)
    status = MPI.Status() if stage is not None and status is None else status
    _world(comm).Recv(spec, source, tag, status)
    if stage is not None and status is not None:
        _deliver(array, stage, status)
    return buf


def isend(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> MPI.Request:
    """Start sending `buf`; it must stay as it is until the request that is returned is complete.

    As MPI_Isend in the MPI standard.
    """
    array, spec = _outgoing("buf", buf)
    request = _kept(_world(comm).Isend(spec, dest, tag), array)
    _count(array, dest, comm)
    return request


def irecv(
    buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, *, comm: MPI.Comm | None = None
) -> MPI.Request:
    """Start receiving into `buf`; it holds the message once the request that is returned is complete.

    As MPI_Irecv in the MPI standard.  Of a buffer on a GPU, complete it by its own methods or `pycoll.waitall` and the
    like: MPI's functions on several requests do not know that the message may have to be copied there.
    """
    array, spec, stage = _incoming("buf", buf)
    return _kept(_world(comm).Irecv(spec, source, tag), array, stage)


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
    recvbuf = allocate_like(outgoing, outgoing.shape) if recvbuf is None else recvbuf
    incoming = recv_array("recvbuf", recvbuf)
    check_apart(outgoing, incoming)
    if tasks or not (is_host(outgoing) and is_host(incoming)):
        going = isend(outgoing, dest, sendtag, comm=comm)  # a receive whose send is refused would take another message
        _finish(irecv(incoming, source, recvtag, comm=comm), status)
        _finish(going)
        return recvbuf
    _world(comm).Sendrecv(_spec(outgoing), dest, sendtag, _spec(incoming), source, recvtag, status)
    _count(outgoing, dest, comm)
    return recvbuf
