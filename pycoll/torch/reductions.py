"""The operations of torch.distributed as those of pycoll."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed import ReduceOp

from pycoll.arguments.ops import OpName

from .arrays import as_array
from .flat import Actions

WIDE_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}  # torch cannot divide them

_NAMES: dict[int, OpName] = {
    ReduceOp.SUM.value: "sum",
    ReduceOp.PREMUL_SUM.value: "sum",
    ReduceOp.AVG.value: "avg",
    ReduceOp.PRODUCT.value: "prod",
    ReduceOp.MIN.value: "min",
    ReduceOp.MAX.value: "max",
    ReduceOp.BAND.value: "band",
    ReduceOp.BOR.value: "bor",
    ReduceOp.BXOR.value: "bxor",
}
_LOGICAL: dict[str, OpName] = {
    "sum": "lor",
    "max": "lor",
    "bor": "lor",
    "prod": "land",
    "min": "land",
    "band": "land",
    "bxor": "lxor",
}


class Reduction(NamedTuple):
    """A `ReduceOp` on tensors of one dtype: an operation of pycoll, and what remains to be done before and after it."""

    name: OpName
    factor: Any = None  # of PREMUL_SUM
    divides: bool = False  # whether a sum of integers becomes an average

    def scaled(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the contribution of this rank: the tensor, or a multiple of it."""
        return tensor if self.factor is None else (tensor * self.factor).to(tensor.dtype)

    def scale(self, tensor: torch.Tensor) -> None:
        """Make a tensor the contribution of this rank."""
        if self.factor is not None:
            tensor.detach().mul_(self.factor)

    def after(self, result: torch.Tensor, size: int) -> Actions:
        """What remains to be done with the result of this many ranks."""
        return [lambda: _divide(result, size)] if self.divides else []


def reduction(what: str, given: Any, tensor: torch.Tensor) -> Reduction:
    """Return the reduction for a `ReduceOp` on tensors like this one.

    Raise TypeError if it is not defined, or if the factor of PREMUL_SUM has another kind of numbers.
    """
    op = given.op
    found = _reduction(op.value, tensor.dtype, tensor.is_cuda)
    if found is None:
        raise TypeError(f"{what}: {op} is not defined for {tensor.dtype}")
    if found.factor is None:
        return found
    if not _can_scale(tensor, given.factor):
        raise TypeError(f"{what}: the factor {given.factor} of {op} cannot be applied to {tensor.dtype}")
    return found._replace(factor=given.factor)


@lru_cache(maxsize=256)
def _reduction(op: int, dtype: torch.dtype, on_gpu: bool) -> Reduction | None:
    name, numbers = _NAMES.get(op), dtype.is_floating_point or dtype.is_complex
    if dtype == torch.bool:
        name = _LOGICAL.get(name or "")
    elif numbers and (dtype.itemsize == 1 or name in ("band", "bor", "bxor")):
        name = None
    elif name == "avg" and not numbers:
        return None if dtype in WIDE_UNSIGNED and on_gpu else Reduction("sum", divides=True)
    return Reduction(name, 1.0 if op == ReduceOp.PREMUL_SUM.value else None) if name else None


def _can_scale(tensor: torch.Tensor, factor: Any) -> bool:
    try:
        return bool(torch.can_cast(torch.result_type(tensor, factor), tensor.dtype))
    except RuntimeError:  # unsigned integers have no common dtype with others
        return False


def _divide(result: torch.Tensor, divisor: int) -> None:
    """Divide integers in place, and truncate."""
    if result.dtype in WIDE_UNSIGNED:
        array = as_array(result)
        np.floor_divide(array, divisor, out=array)
        return
    with torch.inference_mode():
        result.div_(divisor, rounding_mode="trunc")
