"""The kinds of memory that the buffers of a collective can be in, and the operations that depend on the kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from ..compiler.program import Program, Step
from ..compiler.storage import ALIGNMENT


class Launcher(Protocol):
    """Binds the steps of a program that run on a GPU to calls."""

    def mark(self) -> Any:
        """Create a mark, which can be waited for."""

    def does(self, step: Step) -> bool:
        """Whether the step runs on the GPU."""

    def call(self, step: Step, mark: Any) -> Callable[[], object]:
        """Bind the step to a call without arguments, which records the mark after it."""


class Memory:
    """Host memory: MPI sends from it, and NumPy combines in it.  See `pycoll.runtime.gpu.memory` for GPU memory."""

    scratch: Hashable = "host"  # programs with the same kind of scratch can share it

    def wait_for_stream(self) -> None:
        """Make later work on the buffers wait for the work that the caller has started."""

    def set_device(self) -> None:
        """Let this thread use the memory, even if another thread made the call."""

    def lowered(self, program: Program) -> Program:
        """Adapt the program to buffers in this memory."""
        return program

    def allocate(self, nbytes: int) -> Any:
        """Allocate scratch memory, aligned to a cache line."""
        area = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -MPI.Get_address(area) % ALIGNMENT
        return area[start : start + nbytes]

    def launcher(self, bases: list[int], dtype: np.dtype, operation: Any, size: int) -> Launcher | None:
        """A launcher for the GPU steps of a program bound to these addresses; None for host memory."""
        return None


HOST = Memory()
