"""Tensors as arrays that share their memory, and the operations of torch.distributed as those of pycoll."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.distributed import ReduceOp

from pycoll.arguments.ops import OpName

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # NumPy has it only through ml_dtypes

_SHARED = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128"
_CODES = {getattr(torch, name): np.dtype(name).str for name in _SHARED.split()} | {torch.bfloat16: "<u2"}

WIDE_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}  # torch cannot divide them

_NAMES: dict[Any, OpName] = {
    ReduceOp.SUM: "sum",
    ReduceOp.PREMUL_SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
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


class _Memory:
    """The memory of a tensor, for NumPy; the array keeps the tensor alive.

    `Tensor.numpy` would mark the storage as not resizable, and FSDP resizes it.
    """

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: torch.Tensor, count: int, code: str) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": (count,),
            "typestr": code,
            "version": 3,
        }


def as_array(tensor: torch.Tensor) -> Any:
    """Return a flat array that shares the memory of a contiguous tensor; of bytes if NumPy does not have the dtype.

    A tensor on a GPU is returned as it is, because pycoll reads its `__cuda_array_interface__`.
    """
    code = _CODES.get(tensor.dtype)
    if tensor.is_cuda:
        return tensor.detach() if code else tensor.detach().reshape(-1).view(torch.uint8)
    if code is None:
        return np.asarray(_Memory(tensor, tensor.nbytes, "|u1"))
    array = np.asarray(_Memory(tensor, tensor.numel(), code))
    return array.view(_BFLOAT16) if tensor.dtype == torch.bfloat16 else array


def operation(what: str, given: Any, tensor: torch.Tensor) -> OpName:
    """Return the name of the operation of pycoll for a `ReduceOp` on tensors of this dtype.

    The average of integers is a sum, which the caller divides.  Raise TypeError if the operation is not defined, or if
    the factor of PREMUL_SUM has another kind of numbers.
    """
    op, dtype = given.op, tensor.dtype
    name = _name(op, dtype, tensor.is_cuda)
    if name is None:
        raise TypeError(f"{what}: {op} is not defined for {dtype}")
    if op == ReduceOp.PREMUL_SUM and not _can_scale(tensor, given.factor):
        raise TypeError(f"{what}: the factor {given.factor} of {op} cannot be applied to {dtype}")
    return name


@lru_cache(maxsize=256)
def _name(op: Any, dtype: torch.dtype, on_gpu: bool) -> OpName | None:
    name, numbers = _NAMES.get(op), dtype.is_floating_point or dtype.is_complex
    if dtype == torch.bool:
        return _LOGICAL.get(name or "")
    if numbers and (dtype.itemsize == 1 or name in ("band", "bor", "bxor")):
        return None
    if name == "avg" and dtype in WIDE_UNSIGNED and on_gpu:
        return None
    return "sum" if name == "avg" and not numbers else name


def _can_scale(tensor: torch.Tensor, factor: Any) -> bool:
    try:
        return bool(torch.can_cast(torch.result_type(tensor, factor), tensor.dtype))
    except RuntimeError:  # unsigned integers have no common dtype with others
        return False


def scaled(given: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return the contribution of this rank: the tensor, or for PREMUL_SUM a multiple of it."""
    return tensor if given.op != ReduceOp.PREMUL_SUM else (tensor * given.factor).to(tensor.dtype)
