"""Tensors as arrays that share their memory."""

from __future__ import annotations

from ctypes import c_char
from typing import Any

import ml_dtypes
import numpy as np
import torch

_SHARED = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128"
_DTYPES = {getattr(torch, name): np.dtype(name) for name in _SHARED.split()}
_DTYPES[torch.bfloat16] = np.dtype(ml_dtypes.bfloat16)  # NumPy has it only through ml_dtypes
_BYTE = np.dtype("u1")


def as_array(tensor: torch.Tensor) -> Any:
    """Return a flat array that shares the memory of a contiguous tensor; of bytes if NumPy does not have the dtype.

    A tensor on a GPU is returned as it is, because pycoll reads its `__cuda_array_interface__`.
    """
    dtype = _DTYPES.get(tensor.dtype)
    if tensor.is_cuda:
        return tensor.detach() if dtype is not None else tensor.detach().reshape(-1).view(torch.uint8)
    if dtype is None:
        dtype = _BYTE
    # not `Tensor.numpy`: it would mark the storage as not resizable, and FSDP resizes it
    nbytes = tensor.nbytes
    memory: Any = (c_char * nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor  # the array keeps it alive
    return np.ndarray(nbytes // dtype.itemsize, dtype, memory)
