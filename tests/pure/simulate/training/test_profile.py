"""Measured layers of a PyTorch model."""

import pytest

from pycoll.simulate.training import Groups, profile, read, simulate_step, write


def test_layers_are_measured(tmp_path):
    torch = pytest.importorskip("torch")
    embedding = torch.nn.Embedding(10, 16)
    model = torch.nn.Sequential(embedding, torch.nn.Linear(16, 32, dtype=torch.float32), torch.nn.ReLU())
    found = profile(model, torch.zeros((4, 8), dtype=torch.int64), repeats=2)
    assert [layer.parameters for layer in found.layers] == [160, 16 * 32 + 32, 0]
    assert [layer.activation for layer in found.layers] == [4 * 8 * 16 * 4, 4 * 8 * 32 * 4, 4 * 8 * 32 * 4]
    assert all(layer.forward > 0 and layer.backward > 0 and layer.dtype == "float32" for layer in found.layers)
    assert found.micro_batch == 4 and all(parameter.grad is None for parameter in model.parameters())
    write(found, tmp_path / "model.json")
    times = [layer.forward + layer.backward for layer in found.layers]
    assert simulate_step(read(tmp_path / "model.json"), Groups({"dp": 1})).time == pytest.approx(sum(times))
