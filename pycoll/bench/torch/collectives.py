"""Collectives of torch.distributed on tensors of one size.

They have the names before torch 2.13, which most programs use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

Call = Callable[[], object]


def _all_reduce(vector: torch.Tensor, block: torch.Tensor, other: torch.Tensor, group: Any) -> torch.Tensor:
    dist.all_reduce(vector, group=group)
    return vector


def _all_gather_into_tensor(vector: torch.Tensor, block: torch.Tensor, other: torch.Tensor, group: Any) -> torch.Tensor:
    dist.all_gather_single(other, block, group=group)
    return other


def _reduce_scatter_tensor(vector: torch.Tensor, block: torch.Tensor, other: torch.Tensor, group: Any) -> torch.Tensor:
    dist.reduce_scatter_single(block, vector, group=group)
    return block


def _broadcast(vector: torch.Tensor, block: torch.Tensor, other: torch.Tensor, group: Any) -> torch.Tensor:
    dist.broadcast(vector, 0, group=group)
    return vector


def _all_to_all_single(vector: torch.Tensor, block: torch.Tensor, other: torch.Tensor, group: Any) -> torch.Tensor:
    dist.all_to_all_single(other, vector, group=group)
    return other


COLLECTIVES: dict[str, Callable[..., torch.Tensor]] = {
    "all_reduce": _all_reduce,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "broadcast": _broadcast,
    "all_to_all_single": _all_to_all_single,
}


class TorchCollective:
    """A collective, with a vector, a block of it and another vector; sizes are rounded to whole blocks of float32."""

    def __init__(self, name: str, nbytes: int) -> None:
        self._function = COLLECTIVES[name]
        count = max(1, nbytes // 4 // dist.get_world_size())
        lengths = count * dist.get_world_size(), count, count * dist.get_world_size()
        self._tensors = [torch.zeros(length) for length in lengths]

    def bound(self, group: Any) -> Call:
        """Return the call on tensors of zeros, whose sums in place do not grow."""
        for tensor in self._tensors:
            tensor.zero_()
        return partial(self._function, *self._tensors, group)

    def differences(self, groups: Mapping[str, Any]) -> int:
        """Return how many elements of the result differ among the groups by more than rounding."""
        results = []
        for group in groups.values():
            random = torch.Generator().manual_seed(dist.get_rank())
            for tensor in self._tensors:
                tensor.uniform_(1, 2, generator=random)
            results.append(self._function(*self._tensors, group).clone())
        return sum(int((~torch.isclose(results[0], other)).sum()) for other in results[1:])
