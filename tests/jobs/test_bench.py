"""The bench, run as a user would."""

import json
import re
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


def test_bench_on_a_gpu(tmp_path):
    """On the stand-in for CuPy; the figures mean nothing, but both yardsticks are there and the results right."""
    (tmp_path / "cupy.py").write_text(
        "import sys; from tests.gpu import standin; sys.modules['cupy'] = standin.module()"
    )
    path = tmp_path / "results.json"
    options = ["--device", "cuda", "--algorithm", "auto", "--sizes", "4K", "--budget", "2", "--json", str(path)]
    environment = {"PYCOLL_CUDA_AWARE": "1", "PYTHONPATH": f"{tmp_path}:."}
    job = run(2, ["-m", "bench", *options], limit=120, environment=environment)
    assert job.code == 0, job.output
    document = json.loads(path.read_text())
    assert document["environment"]["path"] == "direct" and "stand-in" in document["environment"]["gpu"]
    for record in document["records"]:
        assert record["wrong"] == 0 and record["time"] > 0
        assert record["copied"] == 0, "nothing goes by the host on the direct path"
        assert record["primitive"] == "barrier" or record["staged"] > 0
        assert record["native"] is None, "the library does not say that its collectives can do it"
    job = run(1, ["-m", "bench.gpu", str(path)], limit=60, environment=environment)
    assert job.code == 0 and "the GPU copies 268435456 bytes at" in job.output, job.output


def test_bench_without_a_gpu(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('there is none')")
    job = run(2, ["-m", "bench", "--device", "cuda"], limit=60, environment={"PYTHONPATH": f"{tmp_path}:."})
    assert job.code != 0 and "--device cuda: select_device needs the package CuPy" in job.output
    assert "Traceback" not in job.output


def test_info():
    job = run(2, ["-m", "pycoll.info"], limit=60)
    assert job.code == 0, job.output
    for line in ("pycoll: ", "MPI library: ", "thread level: ", "ranks: 2", "CUDA-aware: ", "transports: ", "GPU: "):
        assert sum(found.startswith(line) for found in job.output.splitlines()) == 1, job.output
    assert re.search("^CUDA-aware: (yes|no): .", job.output, re.MULTILINE), job.output
