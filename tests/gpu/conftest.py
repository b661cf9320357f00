"""Fixtures for CuPy, and for both paths of buffers in GPU memory.

Each test runs with a stand-in for CuPy, and also with CuPy if there is a GPU; tests marked `gpu` need a GPU.
"""

import pytest

from pycoll.api import comm_messages
from pycoll.runtime.gpu import cuda_aware

from . import standin


def _no_gpu():
    """Return the reason why there is no GPU to test on; empty if there is one."""
    try:
        import cupy
    except ImportError as error:
        return f"no CuPy: {error}"
    try:
        return "" if cupy.cuda.runtime.getDeviceCount() else "no GPU"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no GPU: {error}"


@pytest.fixture(scope="module", params=["stand-in", pytest.param("GPU", marks=pytest.mark.gpu)])
def xp(request):
    """Yield CuPy, or the stand-in for it."""
    if request.param == "GPU":
        if reason := _no_gpu():
            pytest.skip(reason)
        import cupy

        yield cupy
        return
    with standin.installed() as stand_in:
        comm_messages.serve_devices()  # as if CuPy were installed
        yield stand_in


def on_path(path, xp, monkeypatch):
    """Let buffers take a path, and yield it; skip the test if the GPU does not have it."""
    cuda_aware.support.cache_clear()
    if path == "direct" and hasattr(xp, "__file__") and not cuda_aware.support().aware:
        pytest.skip(f"no CUDA-aware MPI: {cuda_aware.support().reason}")
    monkeypatch.setenv("PYCOLL_CUDA_AWARE", "1" if path == "direct" else "0")
    standin.forget()
    yield path
    standin.forget()


@pytest.fixture(params=["direct", "staged"])
def way(request, xp, monkeypatch):
    """Yield the path of buffers: passed to MPI directly, or staged through host memory."""
    yield from on_path(request.param, xp, monkeypatch)


@pytest.fixture
def strict_mpi(xp, monkeypatch):
    """Make MPI fail where it cannot access GPU memory because only its UCX is CUDA-aware."""
    if not hasattr(xp, "__file__"):
        monkeypatch.setattr(comm_messages, "_mpi", standin.StrictMPI)
