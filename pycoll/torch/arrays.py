"""Tensors as arrays that share their memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # NumPy has it only through ml_dtypes

_SHARED = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128"
_CODES = {getattr(torch, name): np.dtype(name).str for name in _SHARED.split()} | {torch.bfloat16: "<u2"}


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
