"""Combines numbers of 16 bits with the functions of torch, which NumPy and ml_dtypes combine much more slowly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pycoll.arguments import ops

_FUNCTIONS = {
    np.add: torch.add,
    np.multiply: torch.mul,
    np.minimum: torch.minimum,
    np.maximum: torch.maximum,
    np.divide: torch.div,
}


def register() -> None:
    """Let all reductions of these dtypes on the host use torch.  The numbers are the same."""
    for dtype, code in ((torch.float16, np.float16), (torch.bfloat16, ml_dtypes.bfloat16)):
        for ufunc, function in _FUNCTIONS.items():
            ops.kernels[ufunc, np.dtype(code)] = partial(_bound, function, dtype)


def _bound(function: Any, dtype: torch.dtype, left: np.ndarray, right: Any, out: np.ndarray) -> Callable[[], object]:
    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.view(np.int16)).view(dtype)

    other = tensor(right) if isinstance(right, np.ndarray) else right
    return partial(function, tensor(left), other, out=tensor(out))
