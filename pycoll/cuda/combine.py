"""Operations on a GPU: CuPy's functions, and a kernel for what it has none for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..ops import Operation, kind_of
from .arrays import cupy

# what CuPy combines as NumPy does, by NumPy's letter for the dtype
_COMBINED = frozenset("?bBhHiIlLqQefdFD")


def is_combined(operation: Operation, dtype: np.dtype) -> bool:
    """Whether a GPU can combine this; what it cannot is combined on the host."""
    if not operation.predefined or not dtype.isnative:
        return False
    if kind_of(dtype) == "p":
        return dtype.isalignedstruct and all(
            dtype[field].char in _COMBINED and dtype[field].isnative for field in dtype.names or ()
        )
    if dtype.name == "bfloat16":
        return any("E" in signature for signature in getattr(cupy(), operation.combine.__name__).types)
    return dtype.char in _COMBINED


def function_for(operation: Operation, dtype: np.dtype) -> Callable[..., Any]:
    """``combine(left, right, out)`` on CuPy's arrays; of pairs, each is (values, indices)."""
    if kind_of(dtype) == "p":
        return _better("<" if operation.name == "MINLOC" else ">")
    ufunc = getattr(cupy(), operation.combine.__name__)
    return lambda left, right, out: ufunc(left, right, out=out)


@cache
def _better(comparison: str) -> Callable[..., Any]:
    kernel = cupy().ElementwiseKernel(
        "T left, S left_index, T right, S right_index",
        "T out, S out_index",
        f"""
        bool better = right {comparison} left || (right == left && right_index < left_index);
        T value = better ? right : left;
        S index = better ? right_index : left_index;
        out = value;
        out_index = index;
        """,
        f"pycoll_{'minloc' if comparison == '<' else 'maxloc'}",
    )
    return lambda left, right, out: kernel(*left, *right, *out)
