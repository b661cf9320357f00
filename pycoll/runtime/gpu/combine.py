"""Operations on a GPU: functions of CuPy, and kernels for operations that CuPy does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...arguments.device_arrays import cupy
from ...arguments.ops import Operation, kind_of, real_dtype
from ...arguments.streams import on_own_stream, own_stream

# the dtypes, as NumPy type characters, for which CuPy gives the same results as NumPy
_COMBINED = frozenset("?bBhHiIlLqQefdFD")


def is_combined(operation: Operation, dtype: np.dtype) -> bool:
    """Whether the GPU supports this reduction; if not, it is staged through host memory.

    The kernels are compiled here, so that compiler errors show before any message is sent.
    """
    if not operation.predefined:
        return False
    if kind_of(dtype) == "p":
        known = dtype.isalignedstruct and all(_is_known(dtype[field]) for field in dtype.names or ())
    elif dtype.name == "bfloat16":
        known = any("E" in signature for signature in getattr(cupy(), operation.combine.__name__).types)
    else:
        known = _is_known(dtype)
    if known:
        _compile(operation, dtype)
    return known


def _is_known(dtype: np.dtype) -> bool:
    return dtype.isbuiltin == 1 and dtype.isnative and dtype.char in _COMBINED


@cache
def _compile(operation: Operation, dtype: np.dtype) -> None:
    """Compile the kernels, by combining two elements."""
    xp = cupy()
    fields = [dtype[field] for field in dtype.names or ()]
    arrays: Any = [xp.zeros(2, field) for field in fields] if fields else xp.zeros(2, dtype)
    function_for(operation, dtype)(arrays, arrays, arrays)
    if operation.mean:
        divide(xp.zeros(2, real_dtype(dtype)), 2)


def function_for(operation: Operation, dtype: np.dtype) -> Any:
    """``combine(left, right, out)`` on CuPy arrays; for pairs, each argument is (values, indices)."""
    kernel = _kernel_for(operation, dtype)
    if kernel is None:
        ufunc = getattr(cupy(), operation.combine.__name__)
        return lambda left, right, out: ufunc(left, right, out=out)
    return lambda *operands: kernel(*_flat(operands))


def combining(operation: Operation, dtype: np.dtype, operands: Sequence[Any], device: int) -> Callable[[], None]:
    """A call that combines these operands on the stream of pycoll.

    Kernels take the stream as an argument, which takes less time than making it the current one, as for ufuncs.
    """
    kernel = _kernel_for(operation, dtype)
    if kernel is None:
        return on_own_stream(device, partial(function_for(operation, dtype), *operands))
    arguments, stream, on_device = _flat(operands), own_stream(device), cupy().cuda.Device

    def launch() -> None:
        with on_device(device):
            kernel(*arguments, stream=stream)

    return launch


def _flat(operands: Sequence[Any]) -> list[Any]:
    """The operands, with the values and the indices of pairs one by one."""
    return [array for operand in operands for array in (operand if isinstance(operand, list) else [operand])]


def _kernel_for(operation: Operation, dtype: np.dtype) -> Any:
    """The kernel for this reduction; None if a ufunc of CuPy is used."""
    if kind_of(dtype) == "p":
        return _better("<" if operation.name == "MINLOC" else ">")
    if operation.name == "PROD" and dtype.kind == "c":
        return _complex_product()
    name = operation.combine.__name__
    return _arithmetic(name) if dtype.kind in "iufc" and name in _SYMBOLS else None


_SYMBOLS = {"add": "+", "multiply": "*"}


@cache
def _arithmetic(name: str) -> Any:
    """A kernel with the code of the ufunc of CuPy of this name."""
    return cupy().ElementwiseKernel("T left, T right", "T out", f"out = left {_SYMBOLS[name]} right", f"pycoll_{name}")


def divide(result: Any, size: int) -> None:
    """Divide an array in place."""
    cupy().true_divide(result, size, out=result)


@cache
def _complex_product() -> Any:
    """A kernel for products that are bitwise equal to those of `pycoll.arguments.ops`: no fused multiply-add."""
    return cupy().ElementwiseKernel(
        "T left, T right",
        "T out",
        """
        out = T(left.real() * right.real() - left.imag() * right.imag(),
                left.real() * right.imag() + left.imag() * right.real());
        """,
        "pycoll_complex_product",
        options=("--fmad=false",),
    )


@cache
def _better(comparison: str) -> Any:
    """A kernel that selects pairs as `pycoll.arguments.ops` does: NaN is better than any number."""
    return cupy().ElementwiseKernel(
        "T left, S left_index, T right, S right_index",
        "T out, S out_index",
        f"""
        bool nan = left != left, other_nan = right != right;
        bool better = !nan && (other_nan || right {comparison} left);
        bool equal = (nan && other_nan) || right == left;
        better = better || (equal && right_index < left_index);
        T value = better ? right : left;
        S index = better ? right_index : left_index;
        out = value;
        out_index = index;
        """,
        f"pycoll_{'minloc' if comparison == '<' else 'maxloc'}",
    )
