"""Calibration and prediction, run from the command line."""

import json

import pytest

import pycoll
from pycoll.simulate.network import read
from tests.launch import run


@pytest.mark.slow
def test_a_calibrated_network_predicts(tmp_path):
    file = str(tmp_path / "network.json")
    job = run(2, ["-m", "pycoll.simulate", "--calibrate", "-o", file])
    assert job.code == 0, job.output
    assert "between: not measured" in job.output
    network = read(file)
    assert network.inside.beta >= 0 and network.gamma > 0
    known = json.loads((tmp_path / "network.json").read_text())
    assert known["environment"]["ranks"] == 2 and known["missing"] == ["between"]
    result = pycoll.simulate("bcast", algorithm="tree", ranks=2, nbytes=1 << 20, network=network, ranks_per_host=2)
    assert result.time >= (1 << 20) * network.inside.beta

    options = ["allreduce", "-b", "64K", "-e", "256K", "--budget", "2", "--network", file]
    job = run(2, ["-m", "pycoll.bench.predicted", *options, "--json", str(tmp_path / "predicted.json")])
    assert job.code == 0, job.output
    records = json.loads((tmp_path / "predicted.json").read_text())["records"]
    assert len(records) == 2 * len(pycoll.algorithms("allreduce"))
    for record in records:
        assert record["predicted"] >= 0  # the accuracy depends on the load of the machine
        assert 0 < record["min"] <= record["median"]
