"""Combinations are split at a cache-line boundary of their result, and compute the same values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.align import LINE, LONG, aligned
from pycoll.compiler.program import RECV, SCRATCH, Apply, CopyBytes, Program, Region, Start


@given(
    st.tuples(*[st.integers(0, 15).map(lambda place: 4 * place)] * 3),
    st.integers(LONG // 4, LONG),
    st.integers(0, 40),
)
def test_the_parts_are_the_whole(bases, count, start):
    left, right = Region(RECV, 4 * start, 4 * count), Region(SCRATCH, 0, 4 * count)
    others = [Start(0), CopyBytes(left, right)]
    program = Program([*others, Apply(left, right, left)], [], 4 * count)
    found = aligned(program, bases, 4)
    assert found.steps[:2] == others
    parts = found.steps[2:]
    assert len(parts) == (1 if (bases[RECV] + 4 * start) % LINE == 0 else 2)
    assert len(parts) == 1 or (bases[RECV] + parts[1].out.start) % LINE == 0
    memory = [np.arange(2 * LONG + 40.0, dtype=np.float32) for _ in range(3)]
    expected = memory[RECV].copy()
    expected[start : start + count] += memory[SCRATCH][:count]
    for part in parts:
        one, other, out = (memory[b][begin // 4 : (begin + size) // 4] for b, begin, size in part)
        np.add(one, other, out)
    np.testing.assert_array_equal(memory[RECV], expected)


def test_short_ones_stay_whole():
    short = Region(RECV, 0, LONG - 4)
    program = Program([Apply(short, short, short)], [], 0)
    assert aligned(program, (16, 16, 16), 4) is program


def test_no_element_is_cut():
    long = Region(RECV, 0, 24 * LONG)
    program = Program([Apply(long, long, long)], [], 0)
    assert aligned(program, (40, 40, 40), 16) is program
    assert [step.out.size for step in aligned(program, (16, 16, 16), 12).steps] == [48, 24 * LONG - 48]
