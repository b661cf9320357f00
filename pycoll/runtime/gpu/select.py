"""Assigns the GPUs of a host to its ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from ...arguments.device_arrays import UnreadableMemory, cupy
from ...base.user_warnings import warn


def select_device(comm: MPI.Comm | None = None) -> int:
    """Select a GPU for this rank, a different one for each rank of a host.

    All ranks of `comm` call this together, before they use a GPU.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.

    Returns
    -------
    int
        The number of the selected GPU.

    Raises
    ------
    RuntimeError
        If the rank sees no GPU.
    ImportError
        If CuPy is not installed.

    Notes
    -----
    Each rank selects among the GPUs that CUDA_VISIBLE_DEVICES lets it see.  If a host has more ranks than GPUs, the
    ranks share them as evenly as possible, and a RuntimeWarning is issued.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    seen, rank = MPI.Intracomm(comm).allgather(visible_gpus()), comm.rank
    chosen: int | None = share_out(seen)[rank]
    if chosen is None:
        limit = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise RuntimeError(f"rank {rank} sees no GPU (CUDA_VISIBLE_DEVICES={limit})")
    together = sum(1 for other in share_out(seen, names=True) if other == seen[rank][chosen])
    if together > 1:
        warn(f"{together} ranks share GPU {chosen} of rank {rank}")
    _cupy().cuda.Device(chosen).use()
    return chosen


def _cupy() -> Any:
    try:
        return cupy("select_device")
    except UnreadableMemory as error:
        raise ImportError(str(error)) from None


def visible_gpus() -> list[str]:
    """The host and the PCI bus ids of the GPUs that this process sees, in the order of their numbers."""
    runtime = _cupy().cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError:  # there is none, or no driver
        count = 0
    return [f"{MPI.Get_processor_name()} {runtime.deviceGetPCIBusId(number)}" for number in range(count)]


def share_out(seen: Sequence[Sequence[str]], names: bool = False) -> list[Any]:
    """For each rank, the number (or the name) of one of the GPUs that it sees; None if it sees none.

    In rank order, each rank takes the GPU that the fewest ranks have taken.
    """
    taken: Counter[str] = Counter()
    numbers = []
    for gpus in seen:
        number = min(range(len(gpus)), key=lambda number: taken[gpus[number]], default=None)
        if number is not None:
            taken[gpus[number]] += 1
        numbers.append(number if number is None or not names else gpus[number])
    return numbers
