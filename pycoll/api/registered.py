"""Arrays in memory that the ranks of a host share; collectives on them need no messages for their data."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import keyword_hint
from ..arguments.memory import address
from ..runtime.attach import attach
from ..runtime.interruptions import interruptions_delayed


@interruptions_delayed()
def empty(shape: int | tuple[int, ...], dtype: Any = np.float64, *, comm: MPI.Comm | None = None) -> np.ndarray:
    """Allocate an array in registered memory, which the other ranks of the host can read and write.

    All ranks of the communicator call this together; shapes and dtypes may differ.

    Parameters
    ----------
    shape : int or tuple of int
        The shape of the array.
    dtype : dtype, default float64
        The dtype of its elements.
    comm : MPI.Intracomm, optional
        The communicator whose collectives will use the array; COMM_WORLD by default.

    Returns
    -------
    ndarray
        The array; its contents are undefined.

    Raises
    ------
    ValueError
        If a dimension is negative, or the dtype contains Python objects.
    MemoryError
        If a rank cannot allocate its array; on all ranks.

    Notes
    -----
    Collectives on `comm` use registered memory by themselves, also for slices and other views of the array.  If only
    some of the buffers in a call are registered, or if shared memory is not available, they use messages.  The array is
    registered for `comm` only: in collectives on other communicators it is an ordinary buffer, even if they were
    created from `comm`.  Do not use the array after `pycoll.free`.  It stays valid after the communicator is freed.
    """
    if isinstance(dtype, MPI.Comm):
        raise TypeError(f"dtype must be a dtype, not {dtype!r}{keyword_hint(dtype)}")
    dtype = np.dtype(dtype)
    lengths = (shape,) if isinstance(shape, SupportsIndex) else tuple(shape)
    lengths = tuple(map(operator.index, lengths))
    if dtype.hasobject:
        raise ValueError(f"dtype={dtype} contains Python objects, which other ranks cannot read")
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape={shape} has a negative dimension")
    channel = attach(comm)
    channel.check_usable()
    memory, start = channel.register(math.prod(lengths) * dtype.itemsize)
    return np.ndarray(lengths, dtype, memory, start)


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64, *, comm: MPI.Comm | None = None) -> np.ndarray:
    """Allocate an array as `empty` does, with the same parameters and errors, and set its elements to zero."""
    array = empty(shape, dtype, comm=comm)
    array[...] = 0
    return array


@interruptions_delayed()
def free(array: np.ndarray, *, comm: MPI.Comm | None = None) -> None:
    """Free an array that `empty` or `zeros` returned; it and its views must not be used any more.

    All ranks of the communicator call this together, in the same order for all arrays.

    Parameters
    ----------
    array : ndarray
        The array, not a view of it.
    comm : MPI.Intracomm, optional
        The communicator that was passed to `empty`; COMM_WORLD by default.

    Raises
    ------
    TypeError
        If it is not an array of NumPy.
    ValueError
        If the array is not from `empty` on this communicator, or is freed already, or if the ranks free different
        arrays.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array must be an array of NumPy, not {array!r}")
    channel = attach(comm)
    channel.unregister(address(array))
