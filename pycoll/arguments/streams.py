"""The order of work on a GPU: the work of the caller comes first, then the work of pycoll.

pycoll has its own stream on each GPU.  When a collective begins, this stream waits for the current streams of the
calling thread: of CuPy, and of PyTorch if it is in use.  The collective ends when the work on the stream of pycoll is
complete.  The caller may therefore use any stream.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from mpi4py import MPI

from ..base.errors import GPUError
from .device_arrays import cupy

_UNUSED = 32767  # a tag, the largest that all libraries allow: MPICH makes no progress if the message exists
_DONE, _NOT_READY = 0, 600  # cudaSuccess, cudaErrorNotReady


@cache
def own_stream(device: int) -> Any:
    """The stream of pycoll on a GPU, for copies and reductions."""
    xp = cupy()
    with xp.cuda.Device(device):
        return xp.cuda.Stream(non_blocking=True)


def _current_streams(device: int) -> Iterator[int]:
    """The current streams of this thread, as CUDA handles."""
    torch = sys.modules.get("torch")
    yield cupy().cuda.get_current_stream().ptr
    if torch is not None and torch.cuda.is_initialized():
        yield torch.cuda.current_stream(device).cuda_stream


def _after(stream: Any, other: int) -> None:
    """Make later work on this stream wait for the work that is now on another stream of the current device."""
    xp = cupy()
    event = xp.cuda.Event(disable_timing=True)
    xp.cuda.runtime.eventRecord(event.ptr, other)
    stream.wait_event(event)


def order_after_caller(device: int, others: Iterable[int] = ()) -> None:
    """Make later work on the stream of pycoll wait for the work that is now on the current streams, and on others."""
    own = own_stream(device)
    with cupy().cuda.Device(device):
        for current in (*_current_streams(device), *others):
            _after(own, current)


def join_streams(device: int) -> None:
    """Make later work on the current stream of CuPy wait for the work now on the streams of other packages."""
    xp = cupy()
    with xp.cuda.Device(device):
        current, *others = _current_streams(device)
        for other in others:
            if other != current:
                _after(xp.cuda.get_current_stream(), other)


def wait_for_caller(device: int, others: Iterable[int] = ()) -> None:
    """Wait until all work on the current streams, and on others, is complete."""
    xp = cupy()
    with xp.cuda.Device(device):
        events = []
        for stream in (*_current_streams(device), *others):
            events.append(xp.cuda.Event(disable_timing=True))
            xp.cuda.runtime.eventRecord(events[-1].ptr, stream)
        for event in events:
            _wait_for(event)


def finish(device: int) -> None:
    """Wait until all work on the stream of pycoll is complete."""
    mark = Mark(device)
    mark.record()
    mark.Wait()


def _wait_for(event: Any) -> None:
    """Wait for an event while MPI makes progress: another rank may need it to complete its message."""
    world = MPI.COMM_WORLD
    while not _is_complete(event):
        world.Iprobe(world.rank, _UNUSED)  # not from any source, which is an error after the death of a rank


def _is_complete(event: Any) -> bool:
    """Whether the GPU has reached an event; GPUError if this or earlier work on the GPU failed."""
    runtime = cupy().cuda.runtime
    code = runtime.eventQuery(event.ptr)
    if code not in (_DONE, _NOT_READY):
        try:
            event.synchronize()
        except RuntimeError as error:
            raise GPUError(f"work on the GPU failed: {error}") from error
        raise GPUError(f"work on the GPU failed: cudaEventQuery returned {code}")
    return bool(code == _DONE)


@contextlib.contextmanager
def own_stream_is_current(device: int) -> Iterator[None]:
    """Make the stream of pycoll the current stream of CuPy within a `with` block.

    The `with` block of a stream would restore the stream of the last such block, not the stream of the last `use`.
    """
    xp = cupy()
    with xp.cuda.Device(device):
        before = xp.cuda.get_current_stream()
        own_stream(device).use()
        try:
            yield
        finally:
            before.use()


def on_own_stream(device: int, call: Callable[[], object]) -> Callable[[], None]:
    """Wrap a call so that it launches its kernels on the stream of pycoll."""

    def launch() -> None:
        with own_stream_is_current(device):
            call()

    return launch


class Mark:
    """A position in the stream of pycoll that can be waited for like a request."""

    def __init__(self, device: int) -> None:
        xp = cupy()
        with xp.cuda.Device(device):
            self._event = xp.cuda.Event(disable_timing=True)
        self._stream = own_stream(device)

    def record(self) -> None:
        """Put the mark after all work that is now on the stream."""
        self._event.record(self._stream)

    def Test(self) -> bool:
        """Whether the GPU has reached the mark."""
        return _is_complete(self._event)

    def Wait(self) -> None:
        """Wait until the GPU has reached the mark, while MPI makes progress."""
        _wait_for(self._event)
