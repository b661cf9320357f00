"""Addresses of arrays, in host or GPU memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .device_arrays import cupy


def is_host(array: Any) -> bool:
    """Whether this is an array in host memory, or None."""
    return array is None or isinstance(array, np.ndarray)


def device_of(array: Any) -> int | None:
    """The number of the GPU whose memory an array is in; None in host memory."""
    return None if is_host(array) else array.device.id


def address(array: Any) -> int:
    """The address of an array, in host or GPU memory; 0 for None."""
    if array is None:
        return 0
    return MPI.Get_address(array) if isinstance(array, np.ndarray) else array.data.ptr


def array_at(address: int, nbytes: int, dtype: np.dtype) -> np.ndarray:
    """An array in host memory at an address; it does not keep the memory alive."""
    memory: Any = MPI.buffer.fromaddress(address, nbytes)
    return np.frombuffer(memory, dtype)


def overlap(start: int, nbytes: int, other: int, other_nbytes: int) -> bool:
    """Whether two regions of memory, given by their addresses and lengths, overlap."""
    return start < other + other_nbytes and other < start + nbytes


def bounds(array: Any) -> tuple[int, int]:
    """The address of the first byte of an array, and the address after its last byte."""
    start = end = address(array)
    if not array.size:
        return start, end
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            start += (length - 1) * stride
        else:
            end += (length - 1) * stride
    return start, end + array.itemsize


def allocate_like(array: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """Allocate an array of this shape in the same memory as another array."""
    dtype = array.dtype if dtype is None else dtype
    if isinstance(array, np.ndarray):
        return np.empty(shape, dtype)
    with array.device:
        return cupy().empty(shape, dtype)
