"""Records of the benchmark."""

import numpy as np
import pytest

from pycoll.bench import measure
from pycoll.bench.measure import Measurement
from pycoll.bench.options import parse
from pycoll.bench.tables import nccl_table
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


def test_exact_sums_are_compared_with_plain_ones(monkeypatch):
    times = {"auto": np.array([30.0, 60.0, 50.0]), "plain": np.array([10.0, 20.0, 10.0]), "mpi": np.full(3, 5.0)}
    monkeypatch.setattr(measure, "alternate", lambda comm, calls, *others: {name: times[name] for name in calls})
    options = parse(["allreduce", "bcast", "--op", "exact_sum"], SIZE)
    exact, plain = (
        measure.measure(WORLD, Measurement(name, 64, False), options, np, 0.1) for name in ("allreduce", "bcast")
    )
    assert {record["algorithm"]: record["plain"] for record in exact} == {"mpi": 0.5, "auto": 3.0}
    assert {record["plain"] for record in plain} == {None}
    assert "time /" in nccl_table(exact, options)
