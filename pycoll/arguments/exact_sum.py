"""Sums of floating-point numbers that are rounded once, so that they do not depend on the order of the summands.

The sum of some arrays is kept as an expansion: arrays of float64 whose bits do not overlap, and whose exact sum,
elementwise, is that of the arrays (Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric
predicates", 1997).  The last step adds them with rounding to odd, so that nothing is rounded twice (Boldo and
Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import math

import numpy as np


class ExactSum:
    """The sum of arrays of float32, float64 or complex numbers of one shape, elementwise."""

    def __init__(self) -> None:
        self._rows: list[np.ndarray] = []
        self._parts: list[np.ndarray] = []  # the expansion, from the smallest

    def add(self, row: np.ndarray) -> None:
        """Add an array, which must not change as long as results are wanted."""
        self._dtype = row.dtype
        self._rows.append(row.view(row.real.dtype))
        if len(self._rows) == 3:
            for each in self._rows[:2]:
                self._grow(each)
        if len(self._rows) > 2:
            self._grow(self._rows[-1])

    def _grow(self, row: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            self._parts = _grown(self._parts, row.astype(np.float64))

    def result(self) -> np.ndarray:
        """The sum of the arrays so far, in which each NaN has the bits of np.nan."""
        total = self._real()
        total[np.isnan(total)] = np.nan  # the processor takes sign and payload from one operand, or sets its own
        return total.view(self._dtype)

    def _real(self) -> np.ndarray:
        first = self._rows[0]
        with np.errstate(all="ignore"):
            if len(self._rows) <= 2:  # rounded once anyway
                return first.copy() if len(self._rows) == 1 else first + self._rows[1]
            total = _rounded(self._parts, first.dtype)
            _mend(total, self._rows)
            return total


def _two_sum(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum, and its error (Knuth)."""
    total = one + other
    rest = total - one
    return total, (one - (total - rest)) + (other - rest)


def _grown(parts: list[np.ndarray], more: np.ndarray) -> list[np.ndarray]:
    """The expansion of a sum to which numbers are added."""
    grown = []
    for part in parts:
        more, low = _two_sum(more, part)
        if low.any():
            grown.append(low)
    return [*grown, more]


def _rounded(parts: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """The number that is nearest to a sum."""
    top, lows = parts[-1], []
    for part in parts[-2::-1]:  # from the largest: now `top` is zero only if the sum is
        top, low = _two_sum(top, part)
        lows.append(low)
    tail = np.zeros_like(top)
    for low in reversed(lows):
        tail = _odd_sum(low, tail)
    return top + tail if dtype == np.float64 else _odd_sum(top, tail).astype(dtype)


def _odd_sum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum, rounded to the neighbour whose last bit is 1 if it is not exact."""
    total, error = _two_sum(one, other)
    even = (error != 0) & (total.view(np.int64) & 1 == 0)
    return np.where(even, np.nextafter(total, np.copysign(np.inf, error)), total)


def _mend(total: np.ndarray, rows: list[np.ndarray]) -> None:
    """Set what the arithmetic above does not give: infinities, NaN, the sign of 0, sums whose partial sums overflow."""
    for index in np.flatnonzero(~np.isfinite(total)):
        given = [float(row[index]) for row in rows]
        if others := [value for value in given if not math.isfinite(value)]:
            total[index] = sum(others)
        elif total.dtype == np.float64:  # float32 has no partial sums that are too large
            total[index] = _of_integers(given)
    zero = total == 0
    if zero.any():
        total[zero] = np.where(np.logical_and.reduce([np.signbit(row) for row in rows])[zero], -0.0, 0.0)


def _of_integers(given: list[float]) -> float:
    unit = 2**1074  # a float64 is a multiple of 1 / unit
    total = sum(numerator * (unit // denominator) for numerator, denominator in map(float.as_integer_ratio, given))
    try:
        return total / unit
    except OverflowError:
        return math.inf if total > 0 else -math.inf
