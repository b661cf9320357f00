"""In which order a GPU does things: what the caller told it first, then what pycoll tells it.

pycoll has a stream of its own on each GPU.  At the begin of a collective it follows the streams that are current in the
calling thread (CuPy's, and PyTorch's where that is in use), and a collective ends only when the stream has done its
part; so it does not matter on which streams the caller works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from .arrays import cupy


@cache
def own_stream(device: int) -> Any:
    """The stream on which pycoll copies and combines on a GPU."""
    xp = cupy()
    with xp.cuda.Device(device):
        return xp.cuda.Stream(non_blocking=True)


def _current_streams(device: int) -> Iterator[int]:
    """The streams that are current in this thread, as CUDA's handles."""
    torch = sys.modules.get("torch")
    yield cupy().cuda.get_current_stream().ptr
    if torch is not None and torch.cuda.is_initialized():
        yield torch.cuda.current_stream(device).cuda_stream


def follow(device: int) -> None:
    """What is on the current streams comes before what is put on pycoll's from now on."""
    xp, own = cupy(), own_stream(device)
    with xp.cuda.Device(device):
        for current in _current_streams(device):
            event = xp.cuda.Event(disable_timing=True)
            xp.cuda.runtime.eventRecord(event.ptr, current)
            own.wait_event(event)


def wait_for_caller(device: int) -> None:
    """Wait until all that is on the current streams is done."""
    xp = cupy()
    with xp.cuda.Device(device):
        for current in _current_streams(device):
            xp.cuda.runtime.streamSynchronize(current)


def finish(device: int) -> None:
    """Wait until pycoll's stream has done all that it was told."""
    own_stream(device).synchronize()


def on_own_stream(device: int, call: Callable[[], object]) -> Callable[[], None]:
    """A call whose kernels are put on pycoll's stream."""
    at, own = cupy().cuda.Device(device), own_stream(device)

    def launch() -> None:
        with at, own:
            call()

    return launch


def copying(to: Any, source: Any) -> Callable[[], None]:
    """A copy between two arrays on one GPU, of any strides."""
    return on_own_stream(to.device.id, partial(np.copyto, to, source))


class Mark:
    """A place on pycoll's stream that can be waited for like a request."""

    def __init__(self, device: int) -> None:
        xp = cupy()
        with xp.cuda.Device(device):
            self._event = xp.cuda.Event(disable_timing=True)
        self._stream = own_stream(device)

    def record(self) -> None:
        """It stands after all that the stream was told."""
        self._event.record(self._stream)

    def Test(self) -> bool:
        """Whether the GPU has come there."""
        return self._event.done

    def Wait(self) -> None:
        """Wait until it has."""
        self._event.synchronize()
