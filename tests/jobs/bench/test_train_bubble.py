"""``python -m pycoll.bench.train.bubble``: the measured bubbles of pipelines."""

import json

import pytest

from pycoll.schedule.pipeline import SCHEDULES
from tests.launch import run


def test_bubbles_are_measured(tmp_path):
    path = tmp_path / "bubbles.json"
    options = ["-m", "4", "--ms", "20", "--rounds", "1", "--json", str(path)]
    job = run(2, ["-m", "pycoll.bench.train.bubble", *options])
    assert job.code == 0, job.output
    records = json.loads(path.read_text())["records"]
    assert [record["schedule"] for record in records] == list(SCHEDULES)
    assert records[1]["formula"] == pytest.approx(1 / 5)
    for record in records:
        assert record["formula"] - 0.02 < record["measured"] < 0.9  # processes may wait for a core
        assert record["schedule"] in job.output


def test_wrong_options():
    job = run(2, ["-m", "pycoll.bench.train.bubble", "-m", "3"])
    assert job.code != 0
    assert "-m 3 is not a multiple of the number of ranks, 2" in job.output
