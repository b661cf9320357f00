"""Methods of a communicator that pycoll passes on to mpi4py: messages.

Messages wait until buffers in GPU memory are ready.  If MPI is not CUDA-aware, they are staged through host memory.  If
only its UCX is CUDA-aware, pycoll packs datatypes with gaps on the GPU.
Without CuPy, the methods of mpi4py are used unchanged.
"""

from __future__ import annotations

import functools
import inspect
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import finishing
from ..arguments.buffer_spec import BufferView, is_dense, parse, read_view
from ..arguments.device_arrays import (
    UnreadableMemory,
    device_array,
    gpu_possible,
    naming_streams,
    on_device,
    streams_of,
)
from ..arguments.memory import is_host
from ..arguments.streams import order_after_caller, wait_for_caller
from . import pointtopoint

_mpi = MPI.Intracomm


def _must_be_served(spec: Any, peer: int, comm: MPI.Comm, copied: bool = False) -> bool:
    """Whether a buffer is in GPU memory that MPI cannot access; if it can, wait for the work of the caller on it.

    A UCX that is CUDA-aware alone sends and receives contiguous memory.  MPI itself packs datatypes with gaps and makes
    copies (`copied`), with the CPU.
    """
    array = _on_gpu(spec)
    if array is None:
        return False
    from ..runtime.gpu.memory import is_cuda_aware_to, packs_in_mpi

    if not is_cuda_aware_to(peer, comm) or (not packs_in_mpi() and (copied or _has_gaps(spec))):
        return True
    wait_for_caller(array.device.id)
    return False


def _on_gpu(spec: Any) -> Any:
    """The array of a buffer in GPU memory; None for other buffers."""
    buffer = spec[0] if isinstance(spec, list | tuple) and spec else spec
    if type(buffer) is np.ndarray or not gpu_possible() or not on_device("buf", buffer):
        return None
    try:
        return device_array("buf", buffer)
    except UnreadableMemory:
        return None


def _has_gaps(spec: Any) -> bool:
    try:
        datatype = parse(spec, vector=False).datatype
    except (KeyError, TypeError, ValueError):
        return False  # mpi4py raises the error
    return datatype is not None and not is_dense(datatype)


def packed_view(name: str, spec: Any, writable: bool) -> BufferView:
    """Read a buffer, and pack it if it has gaps; MPI may then access the packed memory."""
    view = read_view(name, spec, 1, writable)
    if view.load:
        if not is_host(view.array):
            order_after_caller(view.array.device.id)
        for action in (*view.load, *finishing(view.array)):
            action()
    return view


class DeviceMessages(MPI.Intracomm):
    """The methods of mpi4py; if CuPy is installed, point-to-point methods accept buffers in GPU memory."""


class _Methods(_mpi):
    """The methods that replace those of mpi4py if CuPy is installed."""

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message, as in mpi4py."""
        if not _must_be_served(buf, dest, self):
            return _mpi.Send(self, buf, dest, tag)
        pointtopoint.send(packed_view("buf", buf, False).whole(), dest, tag, comm=self)

    def Recv(
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: MPI.Status | None = None
    ) -> None:
        """Receive a message, as in mpi4py."""
        if not _must_be_served(buf, source, self):
            return _mpi.Recv(self, buf, source, tag, status)
        view = packed_view("buf", buf, True)
        pointtopoint.recv(view.whole(), source, tag, status, comm=self)
        for store in view.store:
            store()

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        """Start sending a message, as in mpi4py; complete it with its own methods or functions of pycoll."""
        if not _must_be_served(buf, dest, self):
            return _mpi.Isend(self, buf, dest, tag)
        return pointtopoint.isend(packed_view("buf", buf, False).whole(), dest, tag, comm=self)

    def Irecv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> MPI.Request:
        """Start receiving a message, as in mpi4py; complete it with its own methods or functions of pycoll."""
        if not _must_be_served(buf, source, self):
            return _mpi.Irecv(self, buf, source, tag)
        view = packed_view("buf", buf, True)
        request = pointtopoint.irecv(view.whole(), source, tag, comm=self)
        if isinstance(request, pointtopoint.DeviceMessageRequest):
            request.after = view.store
        return request

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: MPI.Status | None = None,
    ) -> None:
        """Send a message and receive another, as in mpi4py."""
        if not (_must_be_served(sendbuf, dest, self) or _must_be_served(recvbuf, source, self)):
            return _mpi.Sendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        request = self.Isend(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag, status)
        request.Wait()


def _refusing(name: str) -> Any:
    """Wrap the method of this name so that it rejects buffers that MPI cannot use."""
    native, copied, persistent = getattr(MPI.Intracomm, name), name in _COPYING, name.endswith("_init")
    parameters = list(inspect.signature(native).parameters)[1:]

    @functools.wraps(native)
    def method(self: MPI.Intracomm, *args: Any, **kwargs: Any) -> Any:
        named = dict(zip(parameters, args)) | kwargs
        given = [named[buffer] for buffer in parameters if "buf" in buffer and buffer in named]
        peers = [named.get(peer, MPI.ANY_SOURCE) for peer in ("dest", "source") if peer in parameters]
        if any(_must_be_served(spec, peer, self, copied) for spec in given for peer in peers):
            raise TypeError(
                f"{name}: a buffer is in GPU memory, which MPI cannot access in this call; use Send and Recv"
            )
        found = native(self, *args, **kwargs)
        array = next(filter(lambda array: array is not None, map(_on_gpu, given)), None) if persistent else None
        return found if array is None else _following(found, given, array.device.id)

    return method


class _Prequest(MPI.Prequest):
    """A persistent message from or to GPU memory, which waits at each start for the work of the caller."""

    _request: MPI.Prequest  # the request of mpi4py, which keeps the buffer alive
    _device: int
    _naming: list[Any]  # arrays that name streams

    def Start(self) -> None:
        """Start the message, as in mpi4py; `MPI.Prequest.Startall` does not wait for the work of the caller."""
        wait_for_caller(self._device, streams_of(self._naming))
        super().Start()


def _following(request: MPI.Prequest, given: list[Any], device: int) -> MPI.Prequest:
    message = _Prequest(request)
    message._request, message._device, message._naming = request, device, naming_streams(given)
    return message


_COPYING = ("Bsend", "Ibsend", "Bsend_init", "Sendrecv_replace", "Isendrecv_replace")
_REFUSING = (
    *(*_COPYING, "Ssend", "Rsend", "Issend", "Irsend"),
    *("Send_init", "Ssend_init", "Rsend_init", "Recv_init", "Isendrecv"),
)


def serve_devices() -> None:
    """Install the methods that accept buffers in GPU memory."""
    for name in ("Send", "Recv", "Isend", "Irecv", "Sendrecv"):
        setattr(DeviceMessages, name, getattr(_Methods, name))
    for name in filter(partial(hasattr, MPI.Intracomm), _REFUSING):
        setattr(DeviceMessages, name, _refusing(name))


if gpu_possible():
    serve_devices()
