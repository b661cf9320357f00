"""Tensors in registered memory, which the other ranks of the host can read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import pycoll
from pycoll.runtime.interruptions import interruptions_delayed

from .process_group import Backend, ProcessGroup, backend_of


def empty(*shape: int | Sequence[int], dtype: torch.dtype | None = None, group: Any = None) -> torch.Tensor:
    """Allocate a tensor in registered memory: collectives on it need no messages for their data inside a host.

    All ranks of the group call this together; shapes and dtypes may differ.

    Parameters
    ----------
    *shape : int, or sequence of int
        The shape.
    dtype : torch.dtype, optional
        The dtype; by default, the default dtype of torch.
    group : ProcessGroup, optional
        The process group whose collectives will use the tensor; the default group by default.

    Returns
    -------
    torch.Tensor
        The tensor, on the CPU; its contents are undefined.

    Raises
    ------
    TypeError
        If the group is not one of pycoll, or an argument has the wrong type.
    RuntimeError
        If a dimension is negative, as in `torch.empty`.
    MemoryError
        If a rank cannot allocate its tensor; on all ranks.
    """
    form: torch.Tensor = torch.empty(*shape, dtype=dtype, device="meta")
    memory = pycoll.empty(form.numel() * form.itemsize, np.uint8, comm=_group(group).comm)
    return torch.from_numpy(memory).view(form.dtype).view(form.shape)


def zeros(*shape: int | Sequence[int], dtype: torch.dtype | None = None, group: Any = None) -> torch.Tensor:
    """Allocate a tensor as `empty` does, and set its elements to zero."""
    return empty(*shape, dtype=dtype, group=group).zero_()


def free(tensor: torch.Tensor, group: Any = None) -> None:
    """Free a tensor that `empty` or `zeros` returned; it and its views must not be used any more.

    All ranks of the group call this together, in the same order for all tensors.

    Parameters
    ----------
    tensor : torch.Tensor
        The tensor.
    group : ProcessGroup, optional
        The process group that was passed to `empty`.

    Raises
    ------
    TypeError
        If the group is not one of pycoll.
    ValueError
        If the tensor is not from `empty` on this group, or is freed already, or if the ranks free different tensors.
    """
    start = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.itemsize
    with interruptions_delayed():
        pycoll.attach(_group(group).comm).unregister(start)  # not `data_ptr`, which is 0 without elements


def _group(group: Any) -> ProcessGroup | Backend:
    found = backend_of(torch.distributed.group.WORLD if group is None else group)
    if not found:
        raise TypeError(f'group must be a process group of the backend "pycoll", not {group!r}')
    return found
