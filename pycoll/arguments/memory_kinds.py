"""The kinds of memory that the buffers of a collective can be in, as far as running it depends on that."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from ..compiler.align import LINE
from ..compiler.program import Program, Step


class Launcher(Protocol):
    """Makes calls of the steps of a program that run on a GPU."""

    def mark(self) -> Any:
        """A new mark, to wait for a step."""

    def does(self, step: Step) -> bool:
        """Whether the step runs on the GPU."""

    def call(self, step: Step, mark: Any) -> Callable[[], object]:
        """The step as a call without arguments, with a mark after it."""


class Memory:
    """Host memory, which MPI sends from and NumPy combines in; see `pycoll.runtime.gpu.memory` for GPU memory."""

    scratch: Hashable = "host"  # programs with the same kind of scratch can share it

    def follow(self) -> None:
        """Let later work on the buffers wait for the work that the caller has started."""

    def adopt(self) -> None:
        """Let this thread work with the memory, even if another thread made the call."""

    def lowered(self, program: Program) -> Program:
        """The program as it must be for buffers in this memory."""
        return program

    def allocate(self, nbytes: int) -> Any:
        """Memory for scratch, which begins where a cache line does."""
        area = np.empty(nbytes + LINE, np.uint8)
        start = -MPI.Get_address(area) % LINE
        return area[start : start + nbytes]

    def launcher(self, bases: list[int], dtype: np.dtype, operation: Any, size: int) -> Launcher | None:
        """Launches the steps on a GPU of a program that is bound to these addresses; None for host memory."""
        return None


HOST = Memory()
