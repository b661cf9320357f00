"""The comparison of pycoll and gloo under torch.distributed, run from the command line."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.jobs.bench.refused import refusals
from tests.launch import ENVIRONMENT, run
from tests.quick import quick

pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")

COLLECTIVES = ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "all_to_all_single"]


def bench(ranks, path, *options):
    job = run(ranks, ["-m", "pycoll.bench.torch", "--iters", "2", *options, "--json", str(path)], 240)
    assert job.code == 0 and not job.timed_out, job.output
    return json.loads(path.read_text()), job.output


@pytest.mark.once
@pytest.mark.parametrize("ranks", quick(2, 3))
def test_collectives(ranks, tmp_path):
    document, output = bench(ranks, tmp_path / "results.json", *COLLECTIVES, "--sizes", "8,64K")
    records = document["records"]
    assert [(record["call"], record["bytes"]) for record in records] == [
        (call, size) for call in COLLECTIVES for size in (8, 65536)
    ]
    for record in records:
        assert record["wrong"] == 0 and record["iterations"] == 2
        for backend in ("pycoll", "gloo"):
            assert 0 < record[f"{backend}_min"] <= record[backend] <= record[f"{backend}_p99"]
        least, most = record["gloo_min"] / record["pycoll_p99"], record["gloo_p99"] / record["pycoll_min"]
        assert least / 2 < record["ratio"] < 2 * most
    assert document["environment"]["torch"] and output.count("all_reduce") == 2
    image = tmp_path / "plot.svg"
    command = [sys.executable, "-m", "pycoll.bench.plots.backends", str(tmp_path / "results.json"), "-o", str(image)]
    subprocess.run(command, check=True, timeout=120)
    assert all(call in image.read_text() for call in COLLECTIVES)


@pytest.mark.slow
def test_training_steps(tmp_path, monkeypatch):
    monkeypatch.delitem(ENVIRONMENT, "OMP_NUM_THREADS")  # the benchmark divides the cores among the ranks
    document, _ = bench(2, tmp_path / "results.json", "ddp_mlp", "ddp_transformer", "fully_shard_mlp")
    assert [record["call"] for record in document["records"]] == ["ddp_mlp", "ddp_transformer", "fully_shard_mlp"]
    assert document["records"][0]["bytes"] == 4 * 6 * (1024 + 1) * 1024


WRONG = [
    (["all_redcue"], "'all_redcue' is not one of: all_reduce, "),
    (["--budget", "0"], "--budget: 0 is not positive"),
    (["--plot", "a.svg", "--sizes", "8"], "--plot needs at least two --sizes"),
    (["--sizes", "8,many"], "many"),
]


@pytest.mark.once
def test_wrong_options():
    texts = refusals(1, "pycoll.bench.torch", [options for options, _ in WRONG])
    for (options, problem), text in zip(WRONG, texts):
        assert problem in text, options
