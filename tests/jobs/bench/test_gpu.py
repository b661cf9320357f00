"""python -m pycoll.bench.gpu: its steps and their results, with the stand-in for CuPy; errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import STAND_IN

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bench_gpu(tmp_path):
    """Run the command in the checkout, with the stand-in for CuPy; results are in tmp_path/results."""
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{STAND_IN}:{ROOT}", "PYCOLL_CUDA_AWARE": "1"}

    def run(*arguments, folder=ROOT, **settings):
        command = [sys.executable, "-m", "pycoll.bench.gpu", "-o", str(tmp_path / "results"), *arguments]
        given = environment | settings
        return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, env=given)

    return run


@pytest.mark.slow
def test_steps_write_their_output(bench_gpu, tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho a GPU\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = bench_gpu("host", "info", "protocol", "copies", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results"
    assert (results / "host.txt").read_text().startswith("a GPU\na GPU\n")
    assert "GPU: 0 of 1: a stand-in" in (results / "info.txt").read_text()
    assert "an exchange of 64 MiB takes" in (results / "protocol.txt").read_text()
    assert "copies 268435456 bytes at" in (results / "copies.txt").read_text()
    assert json.loads((results / "copies.json").read_text())["allreduce"] == []


def test_a_step_that_fails_is_named_and_the_others_run(bench_gpu, tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "cupy.py").write_text("raise ImportError('there is none')")
    done = bench_gpu("host", "info", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert "failed: host, info; their output is in" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "results" / "host.txt").read_text().startswith("no driver")
    assert "GPU: none" in (tmp_path / "results" / "info.txt").read_text()


def test_usage(bench_gpu, tmp_path):
    done = bench_gpu("bnech")
    assert done.returncode == 2 and done.stderr.startswith(
        "python -m pycoll.bench.gpu: unknown step bnech; the steps are host"
    )
    assert not (tmp_path / "results").exists()
    (tmp_path / "results").write_text("a file")
    done = bench_gpu("host")
    assert done.returncode == 2 and str(tmp_path / "results") in done.stderr and "Traceback" not in done.stderr
    assert "protocol  Print how UCX" in bench_gpu("--help").stdout
