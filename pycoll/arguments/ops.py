"""The reduction operations of MPI, by handle or by name, as functions on NumPy arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from mpi4py import MPI

from ..base.errors import WrongOperation
from .arrays import keyword_hint

AVG: Final = "avg"
"""The arithmetic mean over the ranks: the sum, divided in floating point by the number of ranks."""

EXACT_SUM: Final = "exact_sum"
"""The sum of floating-point numbers, rounded once: the same bits for any number and any order of ranks."""

EXACT: Final = "fdFD"  # the dtypes of exact sums, as letters of NumPy

# The names of operations, for type checkers.
OpName = Literal[
    "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc", "avg", "exact_sum"
]


Bound = Callable[[], object]
# Functions that replace a ufunc for one dtype, with the same results: from the operands and the result to a call.
kernels: dict[tuple[object, np.dtype], Callable[[np.ndarray, Any, np.ndarray], Bound]] = {}


class Operation(NamedTuple):
    """A reduction operation; in ``combine(left, right, out)``, `out` may be one of the operands."""

    name: str
    combine: Callable[..., object]
    kinds: str  # the kinds of NumPy dtypes that it is defined for
    commutative: bool = True
    mean: bool = False
    exact: bool = False  # `combine` would round too early
    predefined: bool = True
    handle: int = 0  # of the MPI.Op; for a mean, of MPI.SUM

    def check(self, dtype: np.dtype) -> None:
        """Raise TypeError if the operation is not defined for this dtype."""
        if not self.predefined:
            self._try(dtype)
        elif self.exact and dtype.char not in EXACT:
            hint = "; SUM of integers is exact" if dtype.kind in "iu" else ", only for single and double precision"
            raise WrongOperation(f"op={self.name} is not defined for dtype {dtype}{hint}")
        elif kind_of(dtype) not in self.kinds:
            hint = ""
            if self.mean and dtype.kind in "iub":
                hint = "; convert to floating point" + ", or use SUM" * (dtype.kind != "b")
            elif dtype.kind == "b":
                hint = "; use LAND, LOR or LXOR, or convert to integers"
            raise WrongOperation(f"op={self.name} is not defined for dtype {dtype}{hint}")

    def binder(self, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Bound]:
        """A function from two operands and a result, arrays of this dtype, to a call that combines them."""
        if kernel := kernels.get((self.combine, dtype)):
            return kernel
        if self.combine is np.multiply and dtype.kind == "c":
            return partial(partial, _complex_product)
        if self.combine in (np.minimum, np.maximum):  # these require `out` by name; the others are faster without
            return lambda left, right, out: partial(self.combine, left, right, out=out)
        return partial(partial, self.combine)

    def _try(self, dtype: np.dtype) -> None:
        nothing = np.empty(0, dtype)
        try:
            self.combine(nothing, nothing, nothing)
        except (BufferError, KeyError, ValueError) as error:
            raise WrongOperation(f"op={self.name}: MPI has no type for dtype {dtype}") from error


def kind_of(dtype: np.dtype) -> str:
    """The letter of NumPy for the kind of a dtype; for dtypes of ml_dtypes "i", "u" or "f", for pairs "p".

    A pair is an operand of MINLOC and MAXLOC: a structured dtype of a number and an integer.
    """
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return "i" if dtype.name.startswith("int") else "u" if dtype.name.startswith("uint") else "f"
    if dtype.names and len(dtype.names) == 2:
        value, index = (dtype[name] for name in dtype.names)
        return "p" if value.kind in "iuf" and index.kind in "iu" else dtype.kind
    return dtype.kind


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real and imaginary parts; of a real dtype, the dtype itself."""
    return np.empty(0, dtype).real.dtype


def _better(comparison: np.ufunc, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Select the pair with the better value, elementwise; if the values are equal, the one with the smaller index.

    NaN is better than any number, and all NaN are equal.
    """
    value, index = left.dtype.names or ()
    one, other = left[value], right[value]
    better, equal = comparison(other, one), other == one
    if one.dtype.kind == "f":
        nan, other_nan = np.isnan(one), np.isnan(other)
        better, equal = ~nan & (better | other_nan), equal | (nan & other_nan)
    out[...] = np.where(better | (equal & (right[index] < left[index])), right, left)


def bound_division(dividend: np.ndarray, divisor: int, out: np.ndarray) -> Bound:
    """A call that divides an array by a number."""
    kernel = kernels.get((np.divide, dividend.dtype))
    return kernel(dividend, divisor, out) if kernel else partial(np.divide, dividend, divisor, out=out)


def _complex_product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Multiply complex numbers with results that do not depend on the addresses of the operands.

    Complex products in NumPy are rounded differently in place and out of place.  These are computed from real
    products, which follow IEEE 754.  Floating-point errors are ignored, because other ranks wait for the result.
    """
    with np.errstate(all="ignore"):
        real = left.real * right.real - left.imag * right.imag
        imag = left.real * right.imag + left.imag * right.real
    out.real, out.imag = real, imag


# The operations that MPI defines, with their types: integers (signed i, unsigned u), floating point (f),
# complex (c), logical (b), pairs of a value and an index (p).
_PREDEFINED = {
    "sum": (MPI.SUM, Operation("SUM", np.add, "iufc")),
    "prod": (MPI.PROD, Operation("PROD", np.multiply, "iufc")),
    "min": (MPI.MIN, Operation("MIN", np.minimum, "iuf")),
    "max": (MPI.MAX, Operation("MAX", np.maximum, "iuf")),
    "land": (MPI.LAND, Operation("LAND", np.logical_and, "iub")),
    "lor": (MPI.LOR, Operation("LOR", np.logical_or, "iub")),
    "lxor": (MPI.LXOR, Operation("LXOR", np.logical_xor, "iub")),
    "band": (MPI.BAND, Operation("BAND", np.bitwise_and, "iu")),
    "bor": (MPI.BOR, Operation("BOR", np.bitwise_or, "iu")),
    "bxor": (MPI.BXOR, Operation("BXOR", np.bitwise_xor, "iu")),
    "minloc": (MPI.MINLOC, Operation("MINLOC", partial(_better, np.less), "p")),
    "maxloc": (MPI.MAXLOC, Operation("MAXLOC", partial(_better, np.greater), "p")),
}
BY_NAME = {name: operation._replace(handle=handle.handle) for name, (handle, operation) in _PREDEFINED.items()}
BY_NAME["avg"] = Operation("AVG", np.add, "fc", mean=True, handle=MPI.SUM.handle)
BY_NAME["exact_sum"] = Operation("EXACT_SUM", np.add, "fc", exact=True, handle=MPI.SUM.handle)

CONSTANTS = frozenset(id(op) for op in vars(MPI).values() if isinstance(op, MPI.Op))
"""The operations that are constants of mpi4py; `Free` does not change them."""


def resolve(op: MPI.Op | str, datatype: MPI.Datatype | None = None, lasting: bool = False) -> Operation:
    """The operation of an `MPI.Op` or a name; raises ValueError or TypeError if there is none.

    The function of a user-defined operation gets `datatype`; None for the datatype that mpi4py infers from the array.
    A `lasting` operation can be used after the caller has freed the `MPI.Op` or the datatype.
    """
    if isinstance(op, str):
        try:
            return BY_NAME[op.lower()]
        except KeyError:
            raise ValueError(f"op={op!r} is not one of: {', '.join(BY_NAME)}") from None
    if not isinstance(op, MPI.Op):
        raise TypeError(f"op must be an MPI.Op or a name, not {op!r}{keyword_hint(op)}")
    for operation in BY_NAME.values():
        if op.handle == operation.handle and not (operation.mean or operation.exact):
            return operation
    if op == MPI.OP_NULL or op.is_predefined:
        name = next((f"MPI.{name}" for name, one in vars(MPI).items() if isinstance(one, MPI.Op) and one == op), op)
        raise ValueError(f"op={name} is not one of: {', '.join(BY_NAME)}, or a user-defined operation")
    if lasting:
        op = kept(op)
        if datatype is not None and not datatype.is_predefined:
            datatype = KeptDatatype(datatype.Dup())
    return _user_defined(op, datatype)


class _KeptOp(MPI.Op):
    """A copy of a user-defined operation, which is freed when nothing refers to it any more."""

    def __del__(self) -> None:
        if not MPI.Is_finalized() and self != MPI.OP_NULL:
            self.Free()


class KeptDatatype(MPI.Datatype):
    """A datatype that is freed when nothing refers to it any more."""

    def __del__(self) -> None:
        if not MPI.Is_finalized():
            self.Free()


_kept: weakref.WeakValueDictionary[tuple[int, bool], _KeptOp] = weakref.WeakValueDictionary()


def kept(op: MPI.Op) -> MPI.Op:
    """A copy of a user-defined operation, because `MPI.Op.Free` of mpi4py makes it unusable for calls in flight.

    There is one copy for each function, because mpi4py allows only a few operations.
    """
    try:
        reduced: Any = op.__reduce__()
        _, (function, commute) = reduced
    except (TypeError, ValueError):  # an operation that was not created in Python
        return op
    key = id(function), bool(commute)
    copy = _kept.get(key)
    if copy is None:
        _kept[key] = copy = _KeptOp.Create(function, commute)
    return copy


def _user_defined(op: MPI.Op, datatype: MPI.Datatype | None) -> Operation:
    def combine(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        result = right.copy()  # MPI overwrites the right operand, which may be a buffer of the caller
        left = left if left.flags.aligned else left.copy()  # mpi4py knows no datatype of unaligned elements
        if datatype is None:
            op.Reduce_local(left, result)
        else:
            op.Reduce_local([left.view(np.uint8), datatype], [result.view(np.uint8), datatype])
        out[...] = result

    return Operation("user-defined", combine, "", op.Is_commutative(), predefined=False, handle=op.handle)
