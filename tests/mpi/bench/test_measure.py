"""Records of the benchmark."""

import numpy as np
import pytest

from pycoll.bench import measure
from pycoll.bench.measure import Measurement
from pycoll.bench.options import parse
from tests.mpi.native import SIZE, WORLD

pytestmark = pytest.mark.mpi


def test_ratios_of_calls_that_are_disturbed(monkeypatch):
    """The medians are arbitrary; in most rounds, MPI takes 20% longer than the ring, and half as long as naive."""
    ring = np.array([10.0, 10.0, 80.0, 10.0, 10.0])
    times = {"ring": ring, "mpi": 1.2 * ring * [8, 1, 1, 8, 1], "naive": 2.4 * ring * [1, 8, 1, 1, 1]}

    def alternate(comm, calls, *others):
        return {name: 1e-6 * times[name] for name in calls}

    monkeypatch.setattr(measure, "alternate", alternate)
    options = parse(["bcast", "-a", "ring,naive", "-c", "0"], SIZE)
    records = measure.measure(WORLD, Measurement("bcast", 64, False), options, np, 0.1)
    ratios = {record["algorithm"]: record["ratio"] for record in records}
    assert ratios == pytest.approx({"mpi": 1.0, "ring": 1.2, "naive": 0.5})
