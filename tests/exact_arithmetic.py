"""Sums of float32 and float64 in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np


def rounded(column: np.ndarray) -> np.floating:
    """The sum of finite numbers, rounded once; of others as IEEE 754 has it, where NaN has the bits of np.nan."""
    numbers, dtype = [float(number) for number in column], column.dtype.type
    if any(not math.isfinite(number) for number in numbers):
        total = sum(number for number in numbers if not math.isfinite(number))
        return dtype(math.nan if math.isnan(total) else total)
    exact = sum(map(Fraction, numbers))
    if exact == 0:
        return dtype(-0.0 if all(math.copysign(1, number) < 0 for number in numbers) else 0.0)
    bits, least = (24, -149) if dtype is np.float32 else (53, -1074)
    exponent = max(least, math.floor(math.log2(abs(exact.numerator)) - math.log2(exact.denominator)) - bits)
    while abs(exact) >= Fraction(2) ** (exponent + bits):
        exponent += 1
    units = round(exact / Fraction(2) ** exponent)  # to the nearest, ties to even
    try:
        return dtype(math.ldexp(units, exponent))
    except OverflowError:
        return dtype(math.copysign(math.inf, units))
