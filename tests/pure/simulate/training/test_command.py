"""``python -m pycoll.simulate training``: its tables, traces and errors."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest

from pycoll.simulate.__main__ import main
from pycoll.simulate.training import Layer, Model, write


@pytest.fixture
def model(tmp_path):
    layer = Layer("block", 1000, 4096, 1e-3, 2e-3, tensor_allreduces=2, repeat=4)
    write(Model("m", (layer,)), tmp_path / "model.json")
    return tmp_path / "model.json"


def test_the_tables(model, capsys):
    main(["training", "--model", str(model), "--mesh", "dp=2,pp=2,tp=2", "-m", "4", "-p", "2", "-a", "dp=ring"])
    printed = capsys.readouterr().out
    assert printed.startswith("dp=2, pp=2, tp=2: 8 ranks on 4 hosts; 8 samples in a step\n")
    kinds = [line.split("  ")[0] for line in printed.splitlines()]
    assert [each for each in kinds if each in ("computing", "bubble", "step", "optimizer")] == [
        "computing",
        "bubble",
        "step",
    ]
    assert {tuple(line.split()[:3]) for line in printed.splitlines()} >= {("dp", "allreduce", "ring")}


def test_each_stream_of_a_stage_has_a_track(model, tmp_path, capsys):
    path = tmp_path / "step.json"
    main(["training", "--model", str(model), "--mesh", "dp=2,pp=2,tp=2", "-m", "2", "--trace", str(path)])
    assert capsys.readouterr().out.endswith(f"written to {path}\n")
    events = json.loads(path.read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    assert named == {"computing", "tensor parallel", "pipeline", "data parallel"} | {
        "rank 0 on host 0, stage 0",
        "rank 2 on host 2, stage 1",
    }
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(events) - sum(event["ph"] == "M" for event in events)
    count = lambda pid, tid: sum((span["pid"], span["tid"]) == (pid, tid) for span in spans)  # noqa: E731
    for rank in (0, 2):  # two layers with two parts in each of two passes of two micro-batches
        assert (count(rank, 0), count(rank, 1), count(rank, 2), count(rank, 3)) == (16, 16, 2, 1)
    for rank, number in itertools.product((0, 2), range(4)):
        track = sorted((s["ts"], s["ts"] + s["dur"]) for s in spans if (s["pid"], s["tid"]) == (rank, number))
        assert all(one[1] <= other[0] + 1e-3 for one, other in itertools.pairwise(track))


def test_a_picture(model, tmp_path):
    path = tmp_path / "step.svg"
    main(["training", "--model", str(model), "--mesh", "fsdp=2,pp=2", "--trace", str(path)])
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "options, message",
    [
        (["--mesh", "dp"], "'dp' is not AXIS=VALUE"),
        (["--mesh", "dp=two"], "dp='two' is not a number of ranks"),
        (["--mesh", "dp=2,dp=2"], "the axis 'dp' is given twice"),
        (["--mesh", "xp=2"], "'xp', which is not one of"),
        (["--mesh", "dp=64", "-t", "torus:4x4"], "has 16 hosts"),
        (["--mesh", "dp=2", "-a", "dp=rung"], "rung"),
        (["--mesh", "dp=2", "-a", "ring"], "'ring' is not AXIS=VALUE"),
        (["--mesh", "pp=2", "--schedule", "2f2b"], "2f2b"),
        (["--mesh", "dp=2", "--trace", "step.txt"], "--trace step.txt does not end in .json or .svg"),
        (["--mesh", "dp=2", "--trace", "nowhere/step.json"], "no such directory"),
        (["--mesh", "dp=2", "--bucket-mb", "0"], "bucket=0"),
        (["--mesh", "dp=2", "--network", "nowhere.json"], "nowhere.json: no such file"),
        ([], "--mesh"),
    ],
)
def test_wrong_options_end_in_a_line(model, options, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["training", "--model", str(model), *options])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and message in error and error.count("\n") == 1
