"""Models: their files, and their division into stages."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.simulate.training import InvalidModel, Layer, Model, read, write
from pycoll.simulate.training.model import divided


def test_a_written_model_is_read_back(tmp_path):
    layers = (
        Layer("in", 10, 20, flops=3.0, dtype="bfloat16"),
        Layer("out", 4, 8, 0.5, 1.5, tensor_allreduces=1, repeat=2),
    )
    model = Model("small", layers, micro_batch=4, speed=2.0, peak=9.0, optimizer=0.25)
    write(model, tmp_path / "model.json")
    assert read(tmp_path / "model.json") == model
    assert "dtype" not in json.loads((tmp_path / "model.json").read_text())["layers"][1]


def test_operations_give_the_times_of_both_passes():
    model = Model("m", (Layer("a", 1, 1, flops=6.0, repeat=2), Layer("b", 1, 1, 5.0, 7.0)), speed=2.0)
    assert [(layer.forward, layer.backward) for layer in model.expanded()] == [(3.0, 6.0), (3.0, 6.0), (5.0, 7.0)]
    assert model.flops == 36.0


def test_bytes_follow_from_the_type():
    assert [Layer("a", 10, 0, dtype=dtype).nbytes for dtype in ("float32", "bfloat16")] == [40, 20]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_no_other_division_has_a_faster_slowest_stage(times, data):
    parts = data.draw(st.integers(1, len(times)))
    found = divided([Layer(str(n), 0, 0, forward=float(time)) for n, time in enumerate(times)], parts)
    assert [layer.name for part in found for layer in part] == [str(n) for n in range(len(times))]
    assert len(found) == parts and all(found)
    cuts = itertools.combinations(range(1, len(times)), parts - 1)
    slowest = (max(sum(times[a:b]) for a, b in itertools.pairwise([0, *cut, len(times)])) for cut in cuts)
    assert max(sum(layer.forward for layer in part) for part in found) == min(slowest)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[]", "the top level is not an object"),
        ("{", "is not a model"),
        ('{"name": "m"}', "the top level has no 'layers'"),
        ('{"name": "m", "layers": 3}', "layers=3 is not a list"),
        ('{"name": "m", "layers": []}', "has no layers"),
        ('{"name": "m", "layers": [{"name": "a", "parameters": 1}]}', "layer 0 has no 'activation'"),
        (
            '{"name": "m", "layers": [{"name": "a", "parameters": 1, "activation": 1, "x": 1}]}',
            "'x' is not one of: name",
        ),
        (
            '{"name": "m", "layers": [{"name": "a", "parameters": -1, "activation": 1}]}',
            "parameters=-1 is not an integer",
        ),
        ('{"name": "m", "layers": [{"name": "a", "parameters": 1, "activation": 1, "dtype": "int"}]}', "dtype='int'"),
        ('{"name": "m", "layers": [{"name": "a", "parameters": 1, "activation": 1, "flops": 1}]}', "needs a speed"),
    ],
)
def test_wrong_files_are_errors(tmp_path, text, message):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InvalidModel, match=message):
        read(tmp_path / "model.json")
