"""The bench, run as a user would."""

import json
import subprocess
import sys

import pytest

from bench.cases import MEASURED
from pycoll.schedule import algorithms_of

from ..launch import run

pytestmark = pytest.mark.timeout(200)


def test_bench_of_everything(tmp_path):
    path = tmp_path / "results.json"
    job = run(2, ["-m", "bench", "--sizes", "8,4K", "--budget", "5", "--json", str(path)], limit=120)
    assert job.code == 0, job.output
    records = json.loads(path.read_text())["records"]
    measured = {(record["primitive"], record["algorithm"]) for record in records}
    assert measured == {(name, algorithm) for name in MEASURED for algorithm in algorithms_of(name)}
    for record in records:
        assert record["wrong"] == 0 and record["time"] > 0 and record["native"] > 0
        assert abs(record["speedup"] - record["native"] / record["time"]) < 1e-6 * record["speedup"]
    table = [line for line in job.output.splitlines() if line.startswith("allreduce")]
    assert len(table) == 2 * len(algorithms_of("allreduce"))
    assert not list(tmp_path.glob("*.tmp"))


def test_bench_options(tmp_path):
    path = tmp_path / "results.json"
    options = ["allreduce", "--algorithm", "ring,auto", "--sizes", "1K,1M", "--place", "both", "--dtype", "float64"]
    job = run(2, ["-m", "bench", *options, "--budget", "2", "--json", str(path)], limit=120)
    assert job.code == 0, job.output
    document = json.loads(path.read_text())
    assert document["environment"]["ranks"] == 2
    found = {(r["algorithm"], r["bytes"], r["place"]) for r in document["records"]}
    assert found == {(a, b, p) for a in ("ring", "auto") for b in (1024, 1 << 20) for p in ("in", "out")}
    assert all(record["count"] * 8 == record["bytes"] for record in document["records"])
    ring = next(r for r in document["records"] if r["algorithm"] == "ring")
    assert ring["busbw"] == ring["algbw"] and abs(ring["algbw"] - ring["bytes"] / ring["time"] / 1e3) < 1e-6


def test_bench_refuses_nonsense():
    for options in (["allredcue"], ["--sizes", "8Q"], ["--dtype", "bool"], ["--algorithm", "fastest"]):
        result = subprocess.run([sys.executable, "-m", "bench", *options], capture_output=True, text=True, timeout=60)
        assert result.returncode != 0 and options[-1] in result.stderr
        assert "Traceback" not in result.stderr
