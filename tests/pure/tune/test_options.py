"""Sizes on the command line."""

import pytest

from pycoll.tune.options import nbytes, sizes


def test_sizes():
    assert [nbytes(text) for text in ("8", "4K", "1m", "2GiB", "16B")] == [8, 4096, 1 << 20, 2 << 30, 16]
    assert sizes(8, 64) == [8, 16, 32, 64] and sizes(8, 100, 4) == [8, 32] and sizes(8, 24, 2, 8) == [8, 16, 24]
    for wrong in ((0, 8), (16, 8), (8, 16, 1), (8, 16, 2, 0)):
        with pytest.raises(ValueError, match="--"):
            sizes(*wrong)
