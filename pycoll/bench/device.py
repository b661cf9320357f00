"""The GPU of a rank, and what results say about it."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

import pycoll
from pycoll.arguments.device_arrays import cupy
from pycoll.runtime.gpu.cuda_aware import support


def on_gpu(comm: MPI.Intracomm) -> Any:
    """Select a GPU of the host for this rank, and return CuPy; without a GPU, end the program with an error message."""
    try:
        pycoll.select_device(comm)
        return cupy("--device cuda")
    except (ImportError, RuntimeError) as error:
        sys.exit(f"--device cuda: {error}" if comm.rank == 0 else 1)


def gpu_environment() -> dict[str, object]:
    """Return the versions of CuPy and CUDA, and the name of the GPU."""
    xp = cupy()
    runtime = xp.cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
    return {"cupy": xp.__version__, "gpu": name, "cuda": runtime.runtimeGetVersion()}


def path_environment() -> dict[str, object]:
    """Return the path that buffers in GPU memory take, direct or staged, and the reason."""
    found = support()
    return {"path": "direct" if found.aware else "staged", "because": found.reason}
