"""The points at which another algorithm becomes the fastest."""

import pytest

from pycoll.simulate.crossings import crossings


def test_lines_cross_where_they_meet():
    curves = {"latency": [1.0, 1.0, 1.0, 64.0], "bandwidth": [8.0, 4.0, 0.25, 0.25]}
    (crossing,) = crossings([1, 4, 16, 64], curves)
    assert (crossing.low, crossing.high) == (4, 16)
    assert (crossing.before, crossing.after) == ("latency", "bandwidth")
    assert crossing.at == pytest.approx(8.0) and crossing.seconds == pytest.approx(1.0)
    assert crossings([1, 2], {"one": [1.0, 1.0], "other": [1.0, 0.999]}) == []
    (parting,) = crossings([1, 2], {"one": [1.0, 2.0], "other": [1.0, 1.0]})
    assert crossing.crosses and not parting.crosses
