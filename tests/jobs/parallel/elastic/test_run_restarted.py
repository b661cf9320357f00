"""Without user-level failure mitigation the job ends, and training goes on when it is started again."""

import json

import pytest

from tests.launch import run

from .test_run import PROGRAMS


def train(kind, dying, folder, ranks):
    return run(ranks, [PROGRAMS / "training.py", kind, str(folder), json.dumps(dying), json.dumps({"exits": False})])


@pytest.mark.parametrize("kind", ["fsdp", "ddp", "ps"])
def test_goes_on_from_the_checkpoint(kind, tmp_path):
    killed = train(kind, {"forward": [[1, 60]]}, tmp_path, 3)
    assert killed.code != 0 and not killed.timed_out and killed.left == [], killed.output
    assert "a rank that fails ends this job" in killed.output
    assert "begins after step 0" in killed.output and "ends with" not in killed.output
    again = train(kind, {}, tmp_path, 2)
    assert again.code == 0, again.output
    assert "begins after step 50" in again.output and "ends with 2 ranks, error " in again.output
    assert float(again.output.split("error ")[1].split()[0]) < 1e-3, again.output
