"""Tensors as arrays that share their memory, and the operations of torch.distributed as those of pycoll."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.distributed import ReduceOp

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # NumPy has it only through ml_dtypes

_NAMES = {
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
_LOGICAL = {"sum": "lor", "max": "lor", "bor": "lor", "prod": "land", "min": "land", "band": "land", "bxor": "lxor"}


def as_array(tensor: torch.Tensor) -> Any:
    """Return an array that shares the memory of a contiguous tensor; of bytes if NumPy does not have the dtype.

    A tensor on a GPU is returned as it is, because pycoll reads its `__cuda_array_interface__`.
    """
    tensor = tensor.detach() if tensor.requires_grad else tensor
    if tensor.is_cuda:
        return tensor if tensor.dtype != torch.bfloat16 else tensor.view(torch.int16)
    try:
        return tensor.numpy()
    except TypeError:
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(_BFLOAT16)
        return tensor.reshape(-1).view(torch.uint8).numpy()


def operation(what: str, given: Any, tensor: torch.Tensor) -> str:
    """Return the name of the operation of pycoll for a `ReduceOp` on tensors of this dtype.

    The average of integers is a sum, which the caller divides.
    """
    name = _NAMES.get(given.op)
    dtype = tensor.dtype
    numbers = dtype.is_floating_point or dtype.is_complex
    if name is None or (dtype.is_floating_point and dtype.itemsize == 1) or (numbers and name in ("band", "bor", "bxor")):
        raise TypeError(f"{what}: {given.op} is not defined for {dtype}")
    if dtype == torch.bool:
        name = _LOGICAL.get(name)
        if name is None:
            raise TypeError(f"{what}: {given.op} is not defined for {dtype}")
    return "sum" if name == "avg" and not numbers else name


def scaled(given: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return the contribution of this rank: the tensor, or for PREMUL_SUM a multiple of it."""
    return tensor if given.op != ReduceOp.PREMUL_SUM else tensor * given.factor
