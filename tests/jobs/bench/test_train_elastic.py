"""Elastic training from the command line: failed ranks, and what it costs while none fails."""

import json
import os
import subprocess
import sys

import pytest

from pycoll.bench.train import kills
from tests.launch import ENVIRONMENT, run
from tests.quick import quick


@pytest.mark.ulfm
@pytest.mark.parametrize("driver", quick("fsdp", "ddp", "ps"))
def test_ranks_are_killed_at_random_moments(driver, tmp_path):
    path = tmp_path / "kills.json"
    command = [sys.executable, "-m", "pycoll.bench.train.kills", "--driver", driver, "--kills", "2", "--epochs", "10"]
    job = subprocess.run([*command, "--json", str(path)], env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    assert job.returncode == 0, job.stdout + job.stderr
    assert "2 jobs in which ranks were killed, 0 with a problem" in job.stdout
    for record in json.loads(path.read_text())["records"]:
        assert record["ranks"] == 3 and record["repeated"] <= 1 and record["accuracy"] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["fsdp", "ddp", "ps"])
def test_without_failures_it_is_ordinary_training(driver, tmp_path):
    path, saved = tmp_path / "result.json", tmp_path / "saved"
    command = ["-m", "pycoll.bench.train", "--driver", driver, "--elastic", "--save", str(saved), "--json", str(path)]
    job = run(3, [*command, "--epochs", "2"])
    assert job.code == 0, job.output
    first = json.loads(path.read_text())["records"][0]
    assert first["ranks"] == 3 and first["recoveries"] == []
    job = run(2, [*command, "--epochs", "3"])
    assert job.code == 0 and "going on after step 46 with 2 ranks" in job.output, job.output
    ordinary = run(2, ["-m", "pycoll.bench.train", "--driver", driver, "--epochs", "3", "--json", str(path)])
    assert ordinary.code == 0, ordinary.output
    accuracy = json.loads(path.read_text())["records"][-1]["accuracy"]
    assert f"accuracy {accuracy:.2%} on 2 ranks" in job.output, job.output


@pytest.mark.parametrize("command", ["kills", "copies"])
def test_options_of_training_are_checked(command):
    done = subprocess.run(
        [sys.executable, "-m", f"pycoll.bench.train.{command}", "--budgte"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 2 and done.stderr == "python -m pycoll.bench.train: unrecognized arguments: --budgte\n"


def test_some_ranks_must_go_on(capsys):
    with pytest.raises(SystemExit):
        kills.parse(["-n", "2", "--together", "2"])
    assert "--together 2: at least one of 2 ranks must die, and one go on" in capsys.readouterr().err


def test_cost(tmp_path):
    path = tmp_path / "cost.json"
    job = run(
        2, ["-m", "pycoll.bench.train.copies", "--driver", "fsdp", "--blocks", "3", "--block", "2", "--json", str(path)]
    )
    assert job.code == 0, job.output
    records = json.loads(path.read_text())["records"]
    assert [record["way"] for record in records] == ["without", "copies every 1 steps", "copies every 8 steps"]
    assert all(record["time"] > 0 for record in records) and records[0]["cost"] == 0


@pytest.mark.parametrize(
    "options, error",
    [
        (["--elastic", "--compare"], "--elastic cannot be combined with --compare"),
        (["--elastic", "--driver", "local"], "--elastic cannot be combined"),
        (["--replace"], "--replace needs --elastic"),
    ],
)
def test_wrong_options(options, error):
    job = run(2, ["-m", "pycoll.bench.train", *options])
    assert job.code == 2 and job.output.count(error) == 1, job.output
