"""The GPT of ``bench.train``: gradients, dtypes, names of parameters."""

import numpy as np
import pytest
from mpi4py import MPI

from bench.train.gpt.model import Plan
from bench.train.gpt.text import TOKENS, sequences, standard_library
from bench.train.gpt.trainer import Trainer
from bench.train.gpt.weights import Size, initial
from pycoll.parallel import Mesh
from tests.derivatives import slope
from tests.mpi.native import SIZE

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE > 2, reason="each rank does the same")]
SMALL = Size(tokens=13, length=6, width=8, heads=2, layers=2)


def trainer(size, dtype, scale=0.3):
    numbers = np.random.default_rng(5)
    weights = {
        name: array + scale * numbers.normal(size=array.shape).astype(dtype)
        for name, array in initial(size, 1, np.dtype(dtype)).items()
    }
    return Trainer(weights, size, Mesh(MPI.COMM_SELF, dp=1), Plan(capacity=4.0)), weights


def batch(size):
    return np.random.default_rng(2).integers(size.tokens, size=(2, 3, size.length))


@pytest.mark.parametrize("experts", [0, 4])
def test_gradients_by_finite_differences(experts):
    size = SMALL._replace(experts=experts)
    model, _ = trainer(size, np.float64)
    inputs, targets = batch(size)

    def loss():
        """Return the loss, and that for the balance of experts, whose gradient is added in the backward pass."""
        (chunk,) = model.chunks
        y, saved = chunk.forward(inputs)
        return model.loss(y, targets)[0] + balance(saved)

    def balance(saved):
        if isinstance(saved, list):
            return sum(map(balance, saved))
        return getattr(saved, "loss", 0.0)

    model.learn(inputs, targets)
    gradients = {name: gradient.copy() for name, gradient in model.gradients.items()}
    for name, parameter in model.parameters.items():
        expected, direction = slope(loss, parameter)
        assert np.vdot(gradients[name], direction) == pytest.approx(expected, rel=1e-4, abs=1e-7), name


def test_parameters_have_the_names_of_weights():
    for size in (SMALL, SMALL._replace(experts=2)):
        model, weights = trainer(size, np.float64)
        assert set(model.parameters) == set(weights)


def test_float32_stays_float32():
    model, _ = trainer(SMALL, np.float32)
    (chunk,) = model.chunks
    inputs, targets = batch(SMALL)
    y, saved = chunk.forward(inputs)
    _, dy = model.loss(y, targets)
    assert y.dtype == dy.dtype == np.float32
    last = list(chunk.parts.values())[-1]
    assert last.backward(dy, saved[-1]).dtype == np.float32
    found = []
    part = chunk.parts["layer0"]
    x = np.ones((SMALL.length, SMALL.width), np.float32)
    y, kept = part.forward(x)
    found += [y.dtype, part.backward(y, kept).dtype]
    assert set(found) == {np.dtype(np.float32)}


def test_the_text_is_that_of_the_standard_library():
    text = standard_library()
    assert len(text.training) > 5 * len(text.held_out) > 1e5
    assert text.training.max() < TOKENS
    inputs, targets = sequences(text.training, 3, 10, (1, 2))
    assert inputs.shape == targets.shape == (3, 10)
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
