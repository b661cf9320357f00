"""Layers and pipelines give the same results on arrays in GPU memory and in host memory."""

import numpy as np
import pytest

from pycoll.parallel import (
    ColumnParallelLinear,
    ExpertParallel,
    Pipeline,
    RingAttention,
    RowParallelLinear,
    UlyssesAttention,
    VocabularyParallelEmbedding,
    vocabulary_parallel_cross_entropy,
)
from tests.gpu.api.test_collectives import produced
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi
WIDTH, ROWS = 4 * SIZE, 6 * SIZE


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def compare(xp, program):
    """Run a program, which yields results, with each kind of memory."""
    expected = list(program(np.array))
    found = list(program(lambda array: produced(xp, array)))
    assert len(expected) == len(found) > 0
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, np.ndarray):
            assert isinstance(other, xp.ndarray) and other.dtype == one.dtype
            other = other.get()
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_tensor_parallel_layers(xp, way, sequence):
    tokens, targets = np.random.default_rng(3).integers(2 * SIZE, size=(2, ROWS))

    def program(make):
        options = {"sequence": sequence}
        embedding = VocabularyParallelEmbedding(make(drawn(1, 2 * SIZE, WIDTH)), **options)
        up = ColumnParallelLinear(make(drawn(2, WIDTH, WIDTH)), make(drawn(3, WIDTH)), **options)
        down = RowParallelLinear(make(drawn(4, WIDTH, WIDTH)), make(drawn(5, WIDTH)), **options)
        out = ColumnParallelLinear(make(drawn(6, WIDTH, 2 * SIZE)), **options)
        x, embedded = embedding.forward(tokens)
        h, kept_up = up.forward(x)
        y, kept_down = down.forward(h)
        logits, kept_out = out.forward(y)
        loss, dlogits = vocabulary_parallel_cross_entropy(logits, targets)
        yield from (x, h, y, logits, loss, dlogits)
        dh = down.backward(out.backward(dlogits, kept_out), kept_down)
        embedding.backward(up.backward(dh, kept_up), embedded)
        for layer in (embedding, up, down, out):
            yield from layer.gradients.values()

    compare(xp, program)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kind", [UlyssesAttention, RingAttention])
def test_attention(xp, way, kind, causal):
    def program(make):
        attention = kind(causal=causal)
        q, k, v, dy = (make(drawn([n, RANK], 2, 4, SIZE, 3)) for n in range(4))
        y, saved = attention.forward(q, k, v)
        yield y
        yield from attention.backward(dy, saved)

    compare(xp, program)


@pytest.mark.parametrize("top_k", [1, 2])
def test_experts(xp, way, top_k):
    def program(make):
        experts = 2 * SIZE
        layer = ExpertParallel(
            *(make(drawn(n, *shape)) for n, shape in enumerate([(5, experts), (experts, 5, 7), (experts, 7, 5)])),
            top_k=top_k,
        )
        y, saved = layer.forward(make(drawn([4, RANK], 12, 5)))
        yield from (y, saved.loss, layer.backward(make(drawn([5, RANK], 12, 5)), saved))
        yield from layer.gradients.values()

    compare(xp, program)


class Layer:
    """A matrix, and the sum of its gradients."""

    def __init__(self, weight):
        self.weight, self.gradient = weight, 0

    def forward(self, x):
        return x @ self.weight, x

    def backward(self, dy, x):
        self.gradient = self.gradient + x.T @ dy
        return dy @ self.weight.T

    def backward_input(self, dy, x):
        def add():
            self.gradient = self.gradient + x.T @ dy

        return dy @ self.weight.T, add


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_pipelines(xp, way, schedule):
    def program(make):
        layer = Layer(make(drawn([1, RANK], WIDTH, WIDTH)))
        loss = lambda y, targets: (float((y - targets).sum()), y - targets)  # noqa: E731
        pipeline = Pipeline([layer], loss, schedule=schedule, micro_batches=4)
        yield pipeline.step(make(drawn(2, 8, WIDTH)), make(drawn(3, 8, WIDTH)))
        yield layer.gradient
        pipeline.free()

    compare(xp, program)
