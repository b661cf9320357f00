"""Calibration of a network: the pairs of ranks that measure it, and agreement of all ranks."""

import math

import pytest
from mpi4py import MPI

from pycoll.simulate import calibrate
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def test_a_network_is_calibrated_by_all_hosts_at_once(monkeypatch):
    """All pairs of simulated hosts with two ranks each measure at once; an odd host or rank is left out."""
    for name, value in {"REPEATS": 1, "SECONDS": 1e-3, "PAUSE": 1e-3, "LONG": 1 << 22}.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(MPI, "Get_processor_name", lambda: f"host{RANK // 2}")
    network, missing = calibrate.calibrate(WORLD)
    assert len(set(WORLD.allgather(network))) == 1
    assert missing == (["between"] if SIZE < 3 else []) + (["inside"] if SIZE < 2 else [])
    for name in {"between", "inside"} - set(missing):
        link = getattr(network, name)
        assert 0 < link.beta < math.inf and 0 < link.overhead < math.inf
    apart, together = calibrate.pairs_of(["a", "a", "b", "c", "d", "d", "e"])
    assert (apart, together) == ([(0, 2), (3, 4)], [(0, 1), (4, 5)])
