"""Launches the steps that run on a GPU, by calls without arguments that return before the step is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments.device_arrays import at, cupy
from ...arguments.ops import Operation, kind_of, real_dtype
from ...arguments.streams import Mark, on_own_stream, order_after_caller, own_stream
from ...base.counters import count_staging, counted
from ...compiler.program import Apply, CopyBytes, Divide, Ready, Region, Step
from .combine import combining, divide


class KernelLauncher:
    """Binds the steps of one program that run on the GPU to addresses."""

    def __init__(
        self, device: int, buffers: set[int], bases: list[int], dtype: np.dtype, operation: Operation | None, size: int
    ) -> None:
        self._device, self._buffers, self._bases, self._dtype, self._size = device, buffers, bases, dtype, size
        self._operation = operation
        self._arrays: dict[Region, Any] = {}

    def mark(self) -> Mark:
        return Mark(self._device)

    def does(self, step: Step) -> bool:
        if isinstance(step, Apply | CopyBytes | Divide):
            return any(region.buffer in self._buffers for region in step)
        return isinstance(step, Ready)

    def call(self, step: Step, mark: Mark | None) -> Callable[[], object]:
        """Bind the step to a call, which records the mark after it."""
        launch = self._launch(step)
        if mark is None:
            return launch

        def launch_and_mark() -> None:
            launch()
            mark.record()

        return launch_and_mark

    def _launch(self, step: Step) -> Callable[[], object]:
        match step:
            case CopyBytes(source, to):
                return self._copy(source, to)
            case Apply(left, right, out):
                assert self._operation is not None
                operands = [self._operand(region) for region in (left, right, out)]
                return combining(self._operation, self._dtype, operands, self._device)
            case Divide(region):
                result = self._at(region, real_dtype(self._dtype))
                return on_own_stream(self._device, lambda: divide(result, self._size))
        return lambda: order_after_caller(self._device)

    def _copy(self, source: Region, to: Region) -> Callable[[], object]:
        runtime, stream = cupy().cuda.runtime, own_stream(self._device).ptr
        target, origin = (self._bases[region.buffer] + region.start for region in (to, source))
        copy, default = runtime.memcpyAsync, runtime.memcpyDefault

        def launch() -> None:
            copy(target, origin, source.size, default, stream)

        crosses = (source.buffer in self._buffers) != (to.buffer in self._buffers)
        return counted(launch, source.size, count_staging) if crosses else launch

    def _at(self, region: Region, dtype: np.dtype, offset: int = 0, itemsize: int = 0) -> Any:
        return at(self._bases[region.buffer] + region.start, region.size, dtype, self._device, offset, itemsize)

    def _operand(self, region: Region) -> Any:
        """The array of a region; for pairs, the arrays of both fields."""
        if region not in self._arrays:
            if kind_of(self._dtype) == "p":
                fields: Any = self._dtype.fields  # name: (dtype, offset)
                described = [fields[name] for name in self._dtype.names or ()]
                found: Any = [self._at(region, dtype, offset, self._dtype.itemsize) for dtype, offset, *_ in described]
            else:
                found = self._at(region, self._dtype)
            self._arrays[region] = found
        return self._arrays[region]
