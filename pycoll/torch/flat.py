"""Tensors of a caller as contiguous ones, which collectives read and write, and the counts of their blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Actions = list[Callable[[], object]]


def to_read(tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors, one after the other, without a copy if they lie so in memory."""
    if isinstance(tensors, Tensor):
        return tensors.contiguous().resolve_conj().resolve_neg()
    found = _adjacent(tensors)
    return (
        torch.cat([tensor.reshape(-1) for tensor in tensors]).resolve_conj().resolve_neg() if found is None else found
    )


def to_write(tensors: Tensor | Sequence[Tensor], filled: bool = False) -> tuple[Tensor, Actions]:
    """Return a contiguous tensor to receive into, and what delivers its elements; `filled` with them before."""
    if isinstance(tensors, Tensor):
        if _is_plain(tensors):
            return tensors, []
        tensors = [tensors]
    found = _adjacent(tensors)
    if found is not None:
        return found, []
    if filled:
        buffer = to_read(tensors)
    else:
        first = tensors[0]
        buffer = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=first.dtype, device=first.device)
    return buffer, [lambda: _deliver(buffer, tensors)]


def _deliver(buffer: Tensor, tensors: Sequence[Tensor]) -> None:
    with torch.inference_mode():  # only in this mode, which is that of a thread, may its tensors be written
        for tensor, part in zip(tensors, buffer.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view(tensor.shape))


def _is_plain(tensor: Tensor) -> bool:
    """Whether the memory of a tensor is its elements, one after the other."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the tensors as one, if each begins where the one before ends."""
    end, total, first = tensors[0].data_ptr(), 0, tensors[0]
    storage = first.untyped_storage()
    for tensor in tensors:
        if tensor.dtype != first.dtype:
            raise TypeError(f"all tensors of a list must have the same dtype, not {first.dtype} and {tensor.dtype}")
        if tensor.data_ptr() != end or not _is_plain(tensor):
            return None
        end += tensor.nbytes
        total += tensor.numel()
    if first.storage_offset() * first.itemsize + total * first.itemsize > storage.nbytes():
        return None  # adjacent by chance
    return first.detach().as_strided((total,), (1,))


def apart(given: Tensor, other: Tensor) -> Tensor:
    """Return a tensor to read, or a copy of it if it shares memory with another one, which is written."""
    return given.clone() if is_part(given, other) or is_part(other, given) else given


def is_part(part: Tensor, whole: Tensor) -> bool:
    """Whether a tensor lies in the memory of another one."""
    return bool(0 <= part.data_ptr() - whole.data_ptr() < whole.nbytes)


def elements(name: str, tensor: Tensor, splits: Sequence[int], size: int) -> list[int]:
    """Return the number of elements for each rank, from numbers of rows."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise ValueError(f"all_to_all: the {name} has {rows} rows, which cannot be divided among {size} ranks")
        return [int(tensor.numel()) // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(f"all_to_all: the {name} has {rows} rows, but its split sizes for {size} ranks are {splits}")
    width = int(tensor.numel()) // rows if rows else 0
    return [split * width for split in splits]


def in_items(counts: list[int], tensor: Tensor, array: Any) -> list[int]:
    """Convert counts of the elements of a tensor to counts of the items of its array, which may be bytes."""
    factor = tensor.itemsize // array.itemsize
    return [count * factor for count in counts]
