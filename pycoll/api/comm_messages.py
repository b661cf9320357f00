"""Methods of a communicator that pycoll passes on to mpi4py: messages, and collectives of Python objects.

Messages wait until buffers in GPU memory are ready.  If MPI is not CUDA-aware, they are staged through host memory.
While a method blocks, collectives in flight progress in another thread.  Without CuPy, the methods are unchanged until
the first nonblocking or persistent collective.
"""

from __future__ import annotations

import functools
import inspect
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.buffer_spec import BufferView, read_view
from ..arguments.device_arrays import UnreadableMemory, device_array, gpu_possible, on_device
from ..arguments.streams import wait_for_caller
from ..runtime.gpu.memory import is_direct
from ..runtime.progress import going_on, tasks
from . import pointtopoint

_mpi = MPI.Intracomm


def _must_be_staged(spec: Any) -> bool:
    """Whether MPI cannot use the address of a GPU buffer; if it can, wait for the work of the caller on it."""
    buffer = spec[0] if isinstance(spec, list | tuple) and spec else spec
    if type(buffer) is np.ndarray or not gpu_possible() or not on_device("buf", buffer):
        return False
    try:
        array = device_array("buf", buffer)
    except UnreadableMemory:
        return False
    if is_direct():
        wait_for_caller(array.device.id)
        return False
    return True


def _loaded(spec: Any, writable: bool) -> BufferView:
    side = read_view("buf", spec, 1, writable)
    for load in side.load:
        load()
    return side


class DeviceMessages(MPI.Intracomm):
    """The methods of mpi4py that pycoll wraps if necessary, because a Python function delays a short message.

    If CuPy is installed, point-to-point methods accept buffers in GPU memory.  From the first nonblocking or persistent
    collective on, collectives in flight progress in methods that block.
    """


class _Methods(_mpi):
    """The methods that replace those of mpi4py if CuPy is installed."""

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a message, as in mpi4py."""
        if not _must_be_staged(buf):
            return _mpi.Send(self, buf, dest, tag)
        pointtopoint.send(_loaded(buf, False).whole(), dest, tag, comm=self)

    def Recv(
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: MPI.Status | None = None
    ) -> None:
        """Receive a message, as in mpi4py."""
        if not _must_be_staged(buf):
            return _mpi.Recv(self, buf, source, tag, status)
        side = _loaded(buf, True)
        pointtopoint.recv(side.whole(), source, tag, status, comm=self)
        for store in side.store:
            store()

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        """Start sending a message, as in mpi4py; complete it with its own methods or functions of pycoll."""
        if not _must_be_staged(buf):
            return _mpi.Isend(self, buf, dest, tag)
        return pointtopoint.isend(_loaded(buf, False).whole(), dest, tag, comm=self)

    def Irecv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> MPI.Request:
        """Start receiving a message, as in mpi4py; complete it with its own methods or functions of pycoll.

        Raises TypeError for a datatype with gaps in GPU memory.
        """
        if not _must_be_staged(buf):
            return _mpi.Irecv(self, buf, source, tag)
        side = _loaded(buf, True)
        if side.store:
            raise TypeError("Irecv: a datatype with gaps cannot be received on a GPU, because MPI is not CUDA-aware")
        return pointtopoint.irecv(side.whole(), source, tag, comm=self)

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
        if not (_must_be_staged(sendbuf) or _must_be_staged(recvbuf)):
            return _mpi.Sendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        request = self.Isend(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag, status)
        request.Wait()


def _refusing(name: str) -> Any:
    """Wrap the method of this name so that it rejects buffers that MPI cannot use."""
    native = getattr(MPI.Intracomm, name)

    @functools.wraps(native)
    def method(self: MPI.Intracomm, *args: Any, **kwargs: Any) -> Any:
        if any(map(_must_be_staged, (*args, *kwargs.values()))):
            raise TypeError(f"{name}: a buffer is in GPU memory, and MPI is not CUDA-aware; use Send and Recv")
        return native(self, *args, **kwargs)

    return method


_REFUSING = (
    *("Bsend", "Ssend", "Rsend", "Ibsend", "Issend", "Irsend", "Sendrecv_replace"),
    *("Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Recv_init", "Isendrecv", "Isendrecv_replace"),
)


def serve_devices() -> None:
    """Install the methods that accept buffers in GPU memory."""
    for name in ("Send", "Recv", "Isend", "Irecv", "Sendrecv"):
        setattr(DeviceMessages, name, getattr(_Methods, name))
    for name in filter(partial(hasattr, MPI.Intracomm), _REFUSING):
        setattr(DeviceMessages, name, _refusing(name))
    if following:
        _wrap_blocking()


_BLOCKING = (
    *("Send", "Ssend", "Bsend", "Rsend", "Recv", "Sendrecv", "Sendrecv_replace", "Probe", "Mprobe"),
    *("send", "ssend", "bsend", "recv", "sendrecv", "probe", "mprobe"),
    *("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan", "exscan"),
    *("Create_intercomm", "Agree", "Detach_buffer", "Flush_buffer"),
)
following: list[str] = []  # the methods in which collectives in flight progress


def follow_tasks() -> None:
    """Make collectives in flight progress in the methods of mpi4py that block; has an effect once."""
    if not following:
        following.extend(_BLOCKING)
        _wrap_blocking()


def _wrap_blocking() -> None:
    for name in following:
        setattr(DeviceMessages, name, _progressing(getattr(DeviceMessages, name)))


def _progressing(method: Any) -> Any:
    """Wrap a method so that collectives in flight progress while it blocks."""

    def while_tasks_progress(*args: Any) -> Any:
        with going_on():
            return method(*args)

    parameters = inspect.signature(method).parameters.values()
    defaults = {f"default_{p.name}": p.default for p in parameters}
    wanted = ", ".join(p.name if p.default is p.empty else f"{p.name}=default_{p.name}" for p in parameters)
    passed = ", ".join(p.name for p in parameters)
    names = {"tasks": tasks, "method": method, "while_tasks_progress": while_tasks_progress, **defaults}
    # from source text, as in `derived`: with *args and **kwargs, the wrapper would take five times as long
    exec(f"def call({wanted}): return while_tasks_progress({passed}) if tasks else method({passed})", names)
    return functools.wraps(method)(names["call"])


if gpu_possible():
    serve_devices()
