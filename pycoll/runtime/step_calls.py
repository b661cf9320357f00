"""The steps of a program as calls of NumPy: combinations, copies and divisions of memory at fixed addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arguments.memory import array_at
from ..arguments.ops import Operation, bound_division, real_dtype
from ..base.counters import counted
from ..compiler.program import Apply, CopyBytes, Divide, Program, Region, Start, Step, Wait

_BYTE = np.dtype(np.uint8)


class StepBinder:
    """Makes a call without arguments for each step of a program.

    Parameters
    ----------
    program : Program
        The program.
    bases : sequence of int
        The addresses of its buffers.
    requests : sequence
        A request for each of its messages.
    dtype : numpy.dtype
        The dtype of the elements.
    operation : Operation or None
        The operation of `Apply`.
    size : int
        The number of ranks, by which `Divide` divides.
    """

    def __init__(
        self,
        program: Program,
        bases: Sequence[int],
        requests: Sequence[Any],
        dtype: np.dtype,
        operation: Operation | None,
        size: int,
    ) -> None:
        self._messages, self._bases, self._requests = program.messages, bases, requests
        self._dtype, self._operation, self._size = dtype, operation, size
        # NumPy does not check for overlap if an operand and the result are one object: so one array for each region
        self._arrays: dict[tuple[Region, np.dtype], np.ndarray] = {}

    def call(self, step: Step) -> Callable[[], object]:
        """The call that runs a step."""
        match step:
            case Wait(number):
                return self._requests[number].Wait  # type: ignore[no-any-return]
            case Start(number):
                message, start = self._messages[number], self._requests[number].Start
                return counted(start, message.region.size) if message.outgoing else start
            case Apply(left, right, out):
                assert self._operation
                operands = (self._array(region, self._dtype) for region in (left, right, out))
                return self._operation.binder(self._dtype)(*operands)
            case CopyBytes(source, to):
                return partial(np.copyto, self._array(to, _BYTE), self._array(source, _BYTE))
        assert type(step) is Divide, f"{step} is not a step for the host"
        # complex numbers as pairs of real numbers, whose rounding does not depend on their addresses
        mean = self._array(step.region, real_dtype(self._dtype))
        return bound_division(mean, self._size, mean)

    def _array(self, region: Region, dtype: np.dtype) -> np.ndarray:
        key = region, dtype
        if key not in self._arrays:
            self._arrays[key] = array_at(self._bases[region.buffer] + region.start, region.size, dtype)
        return self._arrays[key]
