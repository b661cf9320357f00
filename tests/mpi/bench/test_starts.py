"""Start delays of the ranks, on clocks set by the test."""

import numpy as np
import pytest

from pycoll.bench import starts
from pycoll.bench.starts import Starts
from pycoll.trace import clocks
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def test_late_starts_are_seen(monkeypatch):
    time = 0
    for module in (starts, clocks):
        monkeypatch.setattr(module, "now", lambda: time)
    found = Starts(WORLD, {"staggered": lambda: None})
    for turn in range(3):
        time = 10**9 * (turn + 1) + 50_000_000 * RANK
        found.calls["staggered"]()
    time = 10**10
    late = found.late()
    if RANK == 0:
        assert late["staggered"] == pytest.approx(np.tile(0.05 * np.arange(SIZE), (3, 1)))
    else:
        assert late == {}
