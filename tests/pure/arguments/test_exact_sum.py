"""Sums that are rounded once, compared with exact arithmetic."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pycoll.arguments.exact_sum import ExactSum
from tests.drawn import examples
from tests.exact_arithmetic import rounded

NUMBERS = {
    np.float32: st.floats(width=32) | st.integers(-149, 127).map(lambda e: math.ldexp(1.0, e)),
    np.float64: st.floats() | st.integers(-1074, 1023).map(lambda e: math.ldexp(1.0, e)),
}


def total(rows):
    found = ExactSum()
    for row in rows:
        found.add(row)
    return found.result()


@pytest.mark.parametrize("dtype", NUMBERS)
@given(data=st.data())
@examples(300)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_sums_of_drawn_numbers(dtype, data):
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 5)))
    rows = data.draw(arrays(dtype, shape, elements=NUMBERS[dtype], fill=st.nothing()))
    if data.draw(st.booleans()):  # large numbers cancel
        rows = data.draw(st.permutations([*rows, *-rows, *data.draw(arrays(dtype, shape, elements=NUMBERS[dtype]))]))
    found = total(rows)
    for number, column in zip(found, np.transpose(rows)):
        expected = rounded(column)
        assert number.tobytes() == expected.tobytes(), column


@pytest.mark.parametrize("count", [3, 8, 40])
def test_the_sum_is_that_of_fsum(count):
    rng = np.random.default_rng(count)
    rows = rng.standard_normal((count, 1000)) * 2.0 ** rng.integers(-80, 80, (count, 1000))
    assert total(rows).tolist() == [math.fsum(column) for column in rows.T]


def test_results_after_each_row():
    rows, found = np.array([[1e16], [1.0], [1.0], [-1e16]]), ExactSum()
    results = []
    for row in rows:
        found.add(row)
        results.append(found.result().item())
    assert results == [1e16, 1e16, 1e16 + 2, 2.0]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_by_parts(dtype):
    rows = np.array([[1 + 1e8j], [1e8 - 1e8j], [-1e8 + 3j]], dtype)
    assert total(rows).tolist() == [1 + 3j] and total(rows).dtype == dtype


def test_partial_sums_may_overflow():
    largest = np.finfo(float).max
    assert total(np.array([[largest], [largest], [-largest], [1.0]])).tolist() == [largest]
    assert total(np.array([[largest], [largest], [-1.0]])).tolist() == [math.inf]
    assert total(np.array([[-largest], [-largest], [math.inf]])).tolist() == [math.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_all_nan_have_the_bits_of_np_nan(dtype, count):
    """Also if NaN has another sign or payload, or is the difference of infinities."""
    real = np.empty(0, dtype).real.dtype
    bits = np.array(np.nan, real).view(f"u{real.itemsize}")
    values = [np.nan, -np.nan, (bits + 5).view(real)[()], np.inf, -np.inf]
    columns = [each for each in permutations(values, count) if np.isnan(each).any() or {np.inf, -np.inf} <= {*each}]
    rows = np.repeat(np.array(columns, real).T, 2, axis=1).view(dtype)
    assert (total(rows).view(bits.dtype) == bits).all()
