"""``python -m bench.train --model gpt``: every kind of parallelism equals one process; training; errors."""

import json
import math
import re

import numpy as np
import pytest

from bench.train.gpt.compare import ALLOWED, kinds
from bench.train.gpt.model import Plan
from bench.train.gpt.weights import Size, initial
from tests.jobs.bench.refused import refusals
from tests.launch import run
from tests.quick import quick

SMALL = ["--width", "32", "--heads", "8", "--batch", "16", "--steps", "20"]
TRAIN = ["-m", "bench.train", "--model", "gpt"]


@pytest.mark.parametrize("ranks", quick(2, 4))
def test_all_kinds_equal_one_process(ranks, tmp_path):
    path = tmp_path / "records.json"
    few = ["--length", str(2 * ranks), "--steps", "8"]
    job = run(ranks, [*TRAIN, "--compare", *SMALL, *few, "--json", str(path)])
    assert job.code == 0, job.output
    records = {record["kind"]: record for record in json.loads(path.read_text())["records"]}
    names = {name for name, *_ in kinds(ranks, Plan())}
    assert set(records) == names | {"one process", "one process, experts"}
    for record in records.values():
        assert record["difference"] <= ALLOWED
        assert record["loss_difference"] <= ALLOWED
    whole = records["one process"]["state"]
    assert records["fully sharded"]["state"] < 1.05 * whole / ranks
    assert records["tensor"]["state"] < whole / ranks + 0.1  # norms, positions and some biases are not divided


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, options",
    [
        (8, ["--mesh", "dp=2,pp=2,tp=2"]),
        (8, ["--mesh", "pp=2,sp=2,tp=2", "--sequence", "ring", "--pipeline", "zb-h1"]),
        (4, ["--mesh", "dp=2,ep=2", "--experts", "4"]),
        (4, ["--mesh", "pp=2,tp=2", "--sequence", "megatron", "--pipeline", "interleaved"]),
        (4, ["--mesh", "dp=2,fsdp=2"]),
        (4, ["--mesh", "ep=2,tp=2", "--experts", "2", "--sequence", "megatron", "--micro-batches", "2"]),
    ],
)
def test_meshes_equal_one_process(ranks, options, tmp_path):
    path = tmp_path / "records.json"
    few = ["--length", "16", "--layers", "4", "--steps", "8"]
    job = run(ranks, [*TRAIN, "--compare", *SMALL, *few, *options, "--json", str(path)])
    assert job.code == 0, job.output
    _, record = json.loads(path.read_text())["records"]
    assert record["mesh"] == options[1].replace(",", " ")
    assert record["difference"] <= ALLOWED
    assert record["loss_difference"] <= ALLOWED


@pytest.mark.once
def test_bytes_along_axes_are_those_of_formulas(tmp_path):
    """Check an all-reduce for each half layer and pass, for the table in both, and six numbers for each character."""
    path, options = tmp_path / "a.json", ["--steps", "2", "--length", "16", "--batch", "16", "--layers", "4"]
    sent = []
    for mesh in ("tp=2", "dp=2"):
        command = [*TRAIN, "--mesh", mesh, *options, "--width", "32", "--json", str(path)]
        messages = {"PYCOLL_REGISTERED": "0", "PYCOLL_SHARED_MEMORY": "0"}
        job = run(2, command, environment=messages)
        assert job.code == 0, job.output
        sent.append(json.loads(path.read_text())["records"][-1]["sent"])
    rows = 16 * 16
    assert list(sent[0]) == ["tp"]
    assert sent[0]["tp"] == pytest.approx(4e-6 * (rows * 32 * (4 * 4 + 2) + 3 * rows), rel=0.01)
    size = Size(length=16, width=32, layers=4)
    parameters = sum(array.size for array in initial(size, 1, np.dtype(np.float32)).values())
    assert list(sent[1]) == ["dp"]
    assert sent[1]["dp"] == pytest.approx(4e-6 * parameters, rel=0.01)


@pytest.mark.once
def test_parameters_fall_with_tensor_and_pipeline(tmp_path):
    states = []
    for mesh in ("dp=4", "pp=2,tp=2"):
        path = tmp_path / f"{mesh}.json"
        job = run(4, [*TRAIN, "--mesh", mesh, "--layers", "8", "--steps", "2", "--length", "8", "--json", str(path)])
        assert job.code == 0, job.output
        states.append(json.loads(path.read_text())["records"][-1]["state"])
    assert states[1] < 0.27 * states[0]


@pytest.mark.once
@pytest.mark.parametrize("others", quick(["--mesh", "tp=2"], ["--mesh", "fsdp=2"], ["--mesh", "pp=2"]))
def test_training_continues_on_another_mesh(others, tmp_path):
    options = ["--dtype", "float64", *SMALL, "--length", "16", "--every", "5"]
    losses = []
    for number, more in enumerate(
        [
            [],
            ["--mesh", "tp=2", "--stop", "10", "--save", str(tmp_path / "saved")],
            [*others, "--resume", str(tmp_path / "saved")],
        ]
    ):
        path = tmp_path / f"{number}.json"
        job = run(2, [*TRAIN, *options, *more, "--json", str(path)])
        assert job.code == 0, job.output
        losses.append({each["step"]: each["held_out"] for each in json.loads(path.read_text())["records"]})
    whole, first, second = losses
    assert sorted(first) == [5, 10]
    assert sorted(second) == [15, 20]
    for step, loss in (first | second).items():
        assert loss == pytest.approx(whole[step], rel=1e-10)


@pytest.mark.once
@pytest.mark.parametrize(
    "options",
    quick(["--mesh", "dp=2", "--experts", "4"], ["--mesh", "fsdp=2"], ["--mesh", "sp=2", "--sequence", "ring"]),
)
def test_it_learns(options):
    job = run(2, [*TRAIN, *options, *SMALL, "--length", "32", "--steps", "60", "--every", "30", "--rate", "0.01"])
    assert job.code == 0, job.output
    first, second = map(float, re.findall(r"held out ([0-9.]+)", job.output))
    assert second < first < math.log(128) - 1


WRONG = [
    (["--mesh", "dp=3"], "dp=3 is 3, but the communicator has 2 ranks"),
    (["--mesh", "dq=2"], "'dq=2' is not AXIS=N with an axis of dp, fsdp, ep, pp, sp, tp"),
    (["--mesh", "tp=2", "--heads", "3", "--width", "48"], "3 heads cannot be divided over tp=2"),
    (["--heads", "3"], "width=128 is not a multiple of 3 heads"),
    (["--mesh", "pp=2", "--layers", "1"], "1 layers are too few for 2 pieces of the pipeline; use at least 2"),
    (["--mesh", "ep=2"], "axis ep needs experts"),
    (["--mesh", "ep=2", "--experts", "3"], "3 experts cannot be divided over 2 ranks"),
    (["--mesh", "sp=2", "--sequence", "ring", "--length", "6"], "6 positions cannot be divided into 4 equal"),
    (["--mesh", "sp=2", "--heads", "1", "--width", "16"], "1 heads of a rank cannot be divided over sp=2; change"),
    (["--mesh", "dp=2", "--batch", "3"], "3 sequences cannot be divided over 2 ranks"),
    (["--sequence", "ring"], "--sequence ring divides positions over sp, which is not in the mesh"),
    (["--steps", "0"], "--steps 0 is not positive"),
    (["--resume", "nowhere"], "--resume nowhere: no such directory"),
    (["--compare", "--mesh", "sp=2", "--experts", "2"], "with experts, sp must be 1"),
    (["--compare", "--save", "d"], "--compare cannot be combined with --save, --resume or --stop"),
]


def test_wrong_options_end_the_job():
    options, error = WRONG[0]
    job = run(2, [*TRAIN, *options])
    assert job.code != 0
    assert error in " ".join(job.output.split())
    assert "Traceback" not in job.output


@pytest.mark.slow
def test_wrong_options():
    texts = refusals(2, "bench.train", [["--model", "gpt", *options] for options, _ in WRONG[1:]])
    for (options, error), text in zip(WRONG[1:], texts):
        assert error in text, options
