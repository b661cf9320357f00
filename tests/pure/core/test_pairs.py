"""MINLOC and MAXLOC in the compiled core are those in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll import core
from pycoll.arguments.ops import resolve

pytestmark = pytest.mark.skipif(bool(core.problem), reason="there is no compiled core")

VALUES, INDICES = ["i2", "i4", "i8", "f4", "f8"], ["i4", "i8"]


@given(
    st.data(), st.sampled_from(VALUES), st.sampled_from(INDICES), st.booleans(), st.sampled_from(["minloc", "maxloc"])
)
def test_the_same_pairs(data, value, index, align, op):
    dtype = np.dtype([("value", value), ("index", index)], align=align)
    numbers = st.sampled_from([0, 1, -1, 2, -(2**15)] + [float("nan"), float("inf"), -0.0] * (value[0] == "f"))
    pairs = st.lists(st.tuples(numbers, st.sampled_from([0, 1, -5, 2**31 - 1])), min_size=4, max_size=4)
    left, right = (np.array(data.draw(pairs), dtype) for _ in range(2))
    expected, found = np.zeros(4, dtype), [np.zeros(4, dtype), left.copy(), right.copy()]
    resolve(op).combine(left, right, expected)
    run = core.Pairs(dtype, op == "maxloc")
    for out in found:  # a new array, or that of an operand
        one = out if out is found[1] else left
        other = out if out is found[2] else right
        run(*(array.ctypes.data for array in (one, other, out)), 4)
        for name in dtype.names:  # records with NaN are never equal
            np.testing.assert_array_equal(out[name], expected[name])


def test_which_dtypes_have_a_loop():
    assert core.has_pairs(np.dtype([("a", "f8"), ("b", "i4")]))
    assert not core.has_pairs(np.dtype(float)), "an empty list has this dtype"
    for value, index in [("f8", "i2"), ("f2", "i4"), ("u4", "i4"), (">f8", "i4"), ("f8", ">i4")]:
        assert not core.has_pairs(np.dtype([("a", value), ("b", index)]))
