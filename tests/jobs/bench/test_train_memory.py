"""``python -m pycoll.bench.train.memory``: the memory of DDP and FSDP during a step."""

import json

import pytest

from tests.launch import run

LAYERS, UNIT = 12, 0.25  # MiB of a layer


def test_fsdp_needs_the_memory_of_the_formula(tmp_path):
    path, picture = tmp_path / "memory.json", tmp_path / "memory.svg"
    options = ["--layers", str(LAYERS), "--width", "256", "--json", str(path), "--output", str(picture)]
    job = run(2, ["-m", "pycoll.bench.train.memory", *options])
    assert job.code == 0, job.output
    ddp, kept, dropped = json.loads(path.read_text())["records"]
    activation = 256 * 256 * 4 / (1 << 20)  # the batch has 256 samples
    for record in (kept, dropped):
        assert record["nbytes"][-1] == pytest.approx(record["formula"], abs=0.3)
        assert max(record["nbytes"]) == pytest.approx(record["formula"] + (LAYERS + 1) * activation, abs=0.6)
        assert len(record["nbytes"]) == 2 * LAYERS + 1
    assert ddp["nbytes"][-1] >= ddp["formula"] == 4 * LAYERS * UNIT
    assert kept["nbytes"][-1] - dropped["nbytes"][-1] == pytest.approx((LAYERS - 2) * UNIT, abs=0.1)
    assert "FSDP, units dropped" in picture.read_text()


@pytest.mark.parametrize(
    "options, problem", [(["--layers", "0"], "must be positive"), (["-o", "a.txt"], "-o a.txt does not end in .svg")]
)
def test_wrong_options(options, problem):
    job = run(2, ["-m", "pycoll.bench.train.memory", *options])
    assert job.code != 0 and job.output.count(problem) == 1
