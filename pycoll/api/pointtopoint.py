"""Point-to-point messages on the communicator of the caller, with the same buffers as the collectives.

Buffers may have any shape and any dtype except object, and may be in GPU memory; ``comm=None`` is COMM_WORLD.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from ..arguments import streams
from ..arguments.arrays import Action, Array, keyword_hint, recv_array, send_array
from ..arguments.check_buffers import check_apart
from ..arguments.memory import allocate_like, is_host
from ..base import settings
from ..base.counters import count
from ..base.errors import TruncatedMessage, WrongRank, WrongTag
from ..runtime.attach import check_running
from ..runtime.interruptions import interruptions_delayed
from ..runtime.progress import tasks, until


def _spec(array: Array) -> list[Any]:
    """The buffer specification of an array; dtypes without an MPI datatype are sent as bytes."""
    try:
        datatype = MPI.Datatype.fromcode(array.dtype.char) if array.dtype.isnative else MPI.BYTE
    except (KeyError, ValueError):
        datatype = MPI.BYTE
    if datatype in (MPI.BYTE, MPI.DATATYPE_NULL) or datatype.size != array.itemsize:
        datatype = MPI.BYTE
    if not is_host(array):
        return [MPI.buffer.fromaddress(array.data.ptr, array.nbytes), datatype]
    return [array.reshape(-1).view(np.uint8) if datatype == MPI.BYTE else array, datatype]


class _MessageRequest(MPI.Request):
    """A request that can report the message it waits for."""

    _request: MPI.Request  # the request of mpi4py, which keeps the buffer alive
    _envelope: tuple[bool, int, int]  # whether it is a send, the other rank, the tag

    @property
    def awaited(self) -> str:
        """The message it waits for, in words."""
        sends, peer, tag = self._envelope
        rank = "any rank" if peer == MPI.ANY_SOURCE else f"rank {peer}"
        tagged = "" if tag == MPI.ANY_TAG else f" with tag {tag}"
        return f"{rank} to receive the message{tagged}" if sends else f"{rank} to send a message{tagged}"


def awaited(request: MPI.Request) -> str:
    """The message that a request waits for, in words, as far as it is known."""
    return request.awaited if isinstance(request, _MessageRequest) else "a request of MPI"


class DeviceMessageRequest(_MessageRequest):
    """A request for a message from or to GPU memory: it keeps the array and delivers a staged message."""

    _array: Array
    _stage: np.ndarray | None  # host memory; the message must still be copied from it
    after: Sequence[Action] = ()  # work after the message has arrived: unpacking

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Test for completion, as in mpi4py."""
        status = MPI.Status() if status is None else status
        self._check_pending()
        done = super().Test(status)
        if done:
            self._arrive(status)
        return done

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Wait for completion, as in mpi4py."""
        status = MPI.Status() if status is None else status
        self._check_pending()
        super().Wait(status)
        self._arrive(status)
        return True

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Test for completion, as in mpi4py."""
        return self.Test(status), None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait for completion, as in mpi4py."""
        self.Wait(status)

    def _check_pending(self) -> None:
        if (self._stage is not None or self.after) and self == MPI.REQUEST_NULL:
            raise RuntimeError("MPI has completed a message to a GPU without pycoll, so it was not copied there")

    def _arrive(self, status: MPI.Status) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            _deliver(self._array, stage, status)
        after, self.after = self.after, ()
        for action in after:
            action()
        self._array = None


def _kept(
    request: MPI.Request, envelope: tuple[bool, int, int], array: Array, stage: np.ndarray | None = None
) -> MPI.Request:
    """The request of MPI, wrapped if a timeout has to report it, or if its array is in GPU memory.

    MPI knows only the address of an array in GPU memory, so the wrapper keeps the array.
    """
    if is_host(array) and not settings.TIMEOUT:
        return request
    message = _MessageRequest(request) if is_host(array) else DeviceMessageRequest(request)
    message._request, message._envelope = request, envelope
    if isinstance(message, DeviceMessageRequest):
        message._array, message._stage = array, stage
    return message


def _outgoing(buf: Any, dest: int, tag: int, comm: MPI.Comm) -> tuple[Array, list[Any]]:
    """The array to send and its buffer specification; data in GPU memory is ready, or copied to the host."""
    _check("dest", dest, "tag", tag, comm)
    array = send_array("buf", buf)
    if is_host(array):
        return array, _spec(array)
    from ..arguments.device_copies import to_host
    from ..runtime.gpu.memory import is_cuda_aware_to

    if not is_cuda_aware_to(dest, comm):
        return array, _spec(to_host(array))
    streams.wait_for_caller(array.device.id)
    return array, _spec(array)


def _incoming(buf: Any, source: int, tag: int, comm: MPI.Comm) -> tuple[Array, list[Any], np.ndarray | None]:
    """The array to receive into, its buffer specification, and the host memory that stages it, if it is staged."""
    _check("source", source, "tag", tag, comm, receives=True)
    array = recv_array("buf", buf)
    if is_host(array):
        return array, _spec(array), None
    from ..arguments.device_copies import pinned
    from ..runtime.gpu.memory import is_cuda_aware_to

    if not is_cuda_aware_to(source, comm):
        streams.order_after_caller(array.device.id)
        stage = pinned(array.nbytes)
        return array, _spec(stage.view(array.dtype)), stage
    streams.wait_for_caller(array.device.id)
    return array, _spec(array), None


def _deliver(array: Array, stage: np.ndarray, status: MPI.Status) -> None:
    """Copy a received message to the GPU; copy the whole buffer if MPI cannot express the count."""
    from ..arguments.device_copies import to_device

    count = status.Get_count(MPI.BYTE)
    to_device(array, stage, array.nbytes if count == MPI.UNDEFINED else count)


def _world(comm: MPI.Comm | None) -> MPI.Comm:
    if comm is not None and not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm must be a communicator, not {comm!r}")
    check_running()
    return MPI.COMM_WORLD if comm is None else comm


@cache
def _highest_tag() -> int:
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)


def _check(name: str, rank: Any, tag_name: str, tag: Any, comm: MPI.Comm, receives: bool = False) -> None:
    """Raise an error unless a message may have this other rank and this tag; a receive may leave both open."""
    for argument, value in ((name, rank), (tag_name, tag)):
        if not hasattr(value, "__index__"):
            raise TypeError(f"{argument}={value!r} is not an integer{keyword_hint(value)}")
    size = MPI.Intercomm(comm).remote_size if comm.is_inter else comm.size
    if not (0 <= rank < size or rank == MPI.PROC_NULL or (receives and rank == MPI.ANY_SOURCE)):
        raise WrongRank(f"{name}={rank} is not a rank of the communicator of size {size}")
    if not (0 <= tag <= _highest_tag() or (receives and tag == MPI.ANY_TAG)):
        raise WrongTag(f"{tag_name}={tag} is not a tag, a number from 0 to {_highest_tag()}")


def check_length(error: MPI.Exception, what: str) -> None:
    """Raise TruncatedMessage if MPI reports that a message is too long for its buffer."""
    if error.Get_error_class() == MPI.ERR_TRUNCATE:
        raise TruncatedMessage(f"the message is longer than {what}") from None


def _count(array: Array, dest: int, comm: MPI.Comm | None) -> None:
    if dest not in (MPI.PROC_NULL, _world(comm).rank):
        count(array.nbytes)


def _finish(
    call: str,
    request: MPI.Request,
    comm: MPI.Comm | None,
    status: MPI.Status | None = None,
    kept: MPI.Request | None = None,
) -> None:
    """Wait while collectives in flight progress; after a timeout keep `request` and the `kept` one."""
    world = _world(comm)
    where = f"{call} on rank {world.rank} of {world.size}"
    with interruptions_delayed():
        try:
            until(lambda kept=kept: request.Test(status), where, lambda: f"it waits for {awaited(request)}")  # type: ignore[misc]
        except MPI.Exception as error:
            check_length(error, f"its buffer: {where}")
            raise


def send(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> None:
    """Send a message; returns when `buf` may be reused.  See MPI_Send in the MPI standard.

    Parameters
    ----------
    buf : buffer
        The message, of any shape; a buffer with gaps is packed.
    dest : int
        The rank that receives, or MPI.PROC_NULL.
    tag : int, default 0
        The tag of the message.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    MPI.Exception
        If a rank or a tag is out of range, or the message is too long.
    CollectiveTimeout
        If the call takes longer than ``PYCOLL_TIMEOUT``.
    """
    if tasks or settings.TIMEOUT:
        return _finish("send", isend(buf, dest, tag, comm=comm), comm)
    array, spec = _outgoing(buf, dest, tag, _world(comm))
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
    """Receive a message.  See MPI_Recv in the MPI standard.

    Parameters
    ----------
    buf : buffer
        Space for the message, which may be shorter.
    source : int, default MPI.ANY_SOURCE
        The rank that sends.
    tag : int, default MPI.ANY_TAG
        The tag of the message.
    status : MPI.Status, optional
        Receives the source, the tag and the count.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    buffer
        `buf`, the object that was passed.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If the receive buffer is read-only or not C-contiguous.
    MPI.Exception
        If a rank or a tag is out of range, or the message is too long.
    CollectiveTimeout
        If the call takes longer than ``PYCOLL_TIMEOUT``.
    """
    if tasks or settings.TIMEOUT:
        _finish("recv", irecv(buf, source, tag, comm=comm), comm, status)
        return buf
    array, spec, stage = _incoming(buf, source, tag, _world(comm))
    status = MPI.Status() if stage is not None and status is None else status
    try:
        _world(comm).Recv(spec, source, tag, status)
    except MPI.Exception as error:
        check_length(error, f"buf, which has {array.nbytes} bytes")
        raise
    if stage is not None and status is not None:
        _deliver(array, stage, status)
    return buf


def isend(buf: Any, dest: int, tag: int = 0, *, comm: MPI.Comm | None = None) -> MPI.Request:
    """Start sending a message.  See MPI_Isend in the MPI standard.

    Parameters
    ----------
    buf : buffer
        The message, of any shape, which must not be modified until the request is complete; a buffer with gaps is
        packed.
    dest : int
        The rank that receives, or MPI.PROC_NULL.
    tag : int, default 0
        The tag of the message.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    MPI.Request
        The request of the message.

    Raises
    ------
    TypeError, MPI.Exception
        As in `send`.
    """
    array, spec = _outgoing(buf, dest, tag, _world(comm))
    request = _kept(_world(comm).Isend(spec, dest, tag), (True, dest, tag), array)
    _count(array, dest, comm)
    return request


def irecv(
    buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, *, comm: MPI.Comm | None = None
) -> MPI.Request:
    """Start receiving a message.  See MPI_Irecv in the MPI standard.

    Parameters
    ----------
    buf : buffer
        Space for the message, which may be shorter; it holds the message once the request is complete.
    source : int, default MPI.ANY_SOURCE
        The rank that sends.
    tag : int, default MPI.ANY_TAG
        The tag of the message.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    MPI.Request
        The request of the message.

    Raises
    ------
    TypeError, ValueError, MPI.Exception
        As in `recv`.

    Notes
    -----
    Complete a receive into GPU memory with the methods of the request, `pycoll.waitall`, `waitany` or `testall`.  The
    functions of MPI for several requests do not copy a staged message to the GPU.
    """
    array, spec, stage = _incoming(buf, source, tag, _world(comm))
    return _kept(_world(comm).Irecv(spec, source, tag), (False, source, tag), array, stage)


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
    """Send a message and receive another at the same time.  See MPI_Sendrecv in the MPI standard.

    Parameters
    ----------
    sendbuf : buffer
        The message, of any shape; a buffer with gaps is packed.
    dest : int
        The rank that receives `sendbuf`, or MPI.PROC_NULL.
    sendtag : int, default 0
        The tag of the message that is sent.
    recvbuf : buffer, optional
        Space for the other message; None allocates an array of the shape and dtype of `sendbuf`.
    source : int, default MPI.ANY_SOURCE
        The rank that sends the other message.
    recvtag : int, default MPI.ANY_TAG
        The tag of the message that is received.
    status : MPI.Status, optional
        Receives the source, the tag and the count.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    buffer
        `recvbuf` or the allocated array.

    Raises
    ------
    TypeError, ValueError, MPI.Exception, CollectiveTimeout
        As in `send` and `recv`; ValueError also if the buffers overlap.
    """
    world = _world(comm)
    _check("dest", dest, "sendtag", sendtag, world)
    _check("source", source, "recvtag", recvtag, world, receives=True)
    outgoing = send_array("sendbuf", sendbuf)
    recvbuf = allocate_like(outgoing, outgoing.shape) if recvbuf is None else recvbuf
    incoming = recv_array("recvbuf", recvbuf)
    check_apart(outgoing, incoming)
    if tasks or settings.TIMEOUT or not (is_host(outgoing) and is_host(incoming)):
        # the send first: if MPI rejects it, a pending receive would take another message
        sending = isend(outgoing, dest, sendtag, comm=comm)
        _finish("sendrecv", irecv(incoming, source, recvtag, comm=comm), comm, status, sending)
        _finish("sendrecv", sending, comm)
        return recvbuf
    try:
        world.Sendrecv(_spec(outgoing), dest, sendtag, _spec(incoming), source, recvtag, status)
    except MPI.Exception as error:
        check_length(error, f"recvbuf, which has {incoming.nbytes} bytes")
        raise
    _count(outgoing, dest, comm)
    return recvbuf
