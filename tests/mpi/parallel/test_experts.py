"""Experts on several ranks: equality with one process, gradients, capacity, bytes sent, errors."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.parallel import ExpertParallel
from pycoll.parallel.experts import within_capacity
from tests.derivatives import slope
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
EXPERTS, WIDTH, HIDDEN, ROWS = 2 * SIZE, 5, 7, 12


def weights(seed=1):
    numbers = np.random.default_rng(seed)
    return [
        numbers.normal(size=shape) for shape in [(WIDTH, EXPERTS), (EXPERTS, WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH)]
    ]


def rows():
    """Return the rows and the gradients of the outputs of all ranks."""
    return np.random.default_rng(2).normal(size=(2, SIZE * ROWS, WIDTH))


def plain(layer, x):
    """Return the outputs and the loss for balance, row by row, without a limit."""
    router, up, down = layer.parameters.values()
    scores = np.exp(x @ router)
    probability = scores / scores.sum(1, keepdims=True)
    y = np.zeros_like(x)
    for row, chances in zip(range(len(x)), probability, strict=True):
        best = np.argsort(-chances)[: layer.top_k]
        total = chances[best].sum() if layer.top_k > 1 else 1
        for expert in best:
            y[row] += chances[expert] / total * (np.maximum(x[row] @ up[expert], 0) @ down[expert])
    share = np.bincount(probability.argmax(1), minlength=router.shape[1]) / len(x)
    return y, layer.balance * router.shape[1] * (share @ probability.mean(0))


@pytest.mark.parametrize("top_k", [1, 2])
def test_one_rank_without_a_limit(top_k):
    layer = ExpertParallel(*weights(), top_k=top_k, capacity=EXPERTS, balance=0.3, comm=MPI.COMM_SELF)
    x, dy = rows()
    y, saved = layer.forward(x)
    expected, loss = plain(layer, x)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    assert saved.loss == pytest.approx(loss)
    dx = layer.backward(dy, saved)
    objective = lambda: np.vdot(dy, plain(layer, x)[0]) + plain(layer, x)[1]  # noqa: E731
    for array, gradient in [(x, dx), *((layer.parameters[name], layer.gradients[name]) for name in layer.parameters)]:
        expected, direction = slope(objective, array)
        assert np.vdot(gradient, direction) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("capacity", [0.5, 1.25, EXPERTS])
@pytest.mark.parametrize("top_k", [1, 2])
def test_training_is_that_of_one_process(top_k, capacity):
    options = {"top_k": top_k, "capacity": capacity}
    alone = ExpertParallel(*weights(), **options, balance=0.02 * SIZE, groups=SIZE, comm=MPI.COMM_SELF)
    ours = ExpertParallel(*weights(), **options, balance=0.02)
    x, target = rows()
    mine = slice(RANK * ROWS, (RANK + 1) * ROWS)
    for _ in range(20):
        y, saved = alone.forward(x)
        dx = alone.backward(y - target, saved)
        found, kept = ours.forward(x[mine])
        np.testing.assert_allclose(found, y[mine], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(ours.backward(found - target[mine], kept), dx[mine], rtol=1e-10, atol=1e-10)
        ours.gradients["router"] = pycoll.allreduce(ours.gradients["router"])
        for layer in (alone, ours):
            for name, parameter in layer.parameters.items():
                parameter -= 0.002 * layer.gradients[name]
                layer.gradients[name][...] = 0
    per = EXPERTS // SIZE
    for name, parameter in ours.parameters.items():
        whole = alone.parameters[name]
        wanted = whole if name == "router" else whole[RANK * per : (RANK + 1) * per]
        np.testing.assert_allclose(parameter, wanted, rtol=0, atol=1e-10)


sizes = st.integers(1, 4)


@examples(40)
@given(sizes, sizes, sizes, st.integers(0, 9), st.integers(1, 3), st.sampled_from([0.3, 1.0, 1.25, 4.0]))
def test_drawn_shapes(together, per_rank, width, hidden, count, top_k, capacity):
    together(check_drawn, per_rank, width, hidden, count, min(top_k, per_rank * SIZE), capacity)


def check_drawn(per_rank, width, hidden, count, top_k, capacity):
    experts, numbers = per_rank * SIZE, np.random.default_rng([per_rank, width, hidden, count])
    shapes = (width, experts), (experts, width, hidden), (experts, hidden, width)
    whole, options = [numbers.normal(size=shape) for shape in shapes], {"top_k": top_k, "capacity": capacity}
    alone = ExpertParallel(*whole, **options, balance=0.02 * SIZE, groups=SIZE, comm=MPI.COMM_SELF)
    ours = ExpertParallel(*whole, **options, balance=0.02)
    x, dy = numbers.normal(size=(2, SIZE * count, width))
    mine = slice(RANK * count, (RANK + 1) * count)
    y, saved = alone.forward(x)
    found, kept = ours.forward(x[mine])
    np.testing.assert_allclose(found, y[mine], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours.backward(dy[mine], kept), alone.backward(dy, saved)[mine], rtol=1e-10, atol=1e-10)
    own = slice(RANK * per_rank, (RANK + 1) * per_rank)
    for name in ("up", "down"):
        np.testing.assert_allclose(ours.gradients[name], alone.gradients[name][own], rtol=1e-10, atol=1e-10)
    router = pycoll.allreduce(ours.gradients["router"])
    np.testing.assert_allclose(router, alone.gradients["router"], rtol=1e-10, atol=1e-10)


def test_the_limit_takes_first_choices_first():
    chosen = np.array([[0, 1], [0, 1], [1, 0], [0, 2]])
    assert within_capacity(chosen, 2).tolist() == [[True, True], [True, False], [True, False], [False, True]]


def test_rows_above_the_limit_get_nothing():
    router = np.zeros((WIDTH, EXPERTS))
    router[:, 0] = 1  # all rows choose expert 0
    layer = ExpertParallel(router, *weights()[1:], capacity=EXPERTS / 4)
    x = np.ones((8, WIDTH))
    y, saved = layer.forward(x)
    assert (y[:2] != 0).any(axis=1).all()
    assert not y[2:].any()
    layer.backward(np.ones_like(y), saved)
    assert layer.gradients["up"][1:].any() == (False if RANK == 0 else layer.gradients["up"].any())


def test_ranks_may_have_different_numbers_of_rows():
    layer = ExpertParallel(*weights(), capacity=EXPERTS)
    x = rows()[0][: 3 * RANK]
    y, saved = layer.forward(x)
    whole = ExpertParallel(*weights(), comm=MPI.COMM_SELF)
    np.testing.assert_allclose(y, plain(whole, x)[0] if len(x) else x, atol=1e-12)
    assert layer.backward(y, saved).shape == x.shape


@pytest.mark.parametrize("top_k", [1, 2])
def test_bytes_are_those_of_the_docstring(top_k, monkeypatch):
    monkeypatch.setattr(settings, "SHARED_MEMORY", False)  # they are those of messages
    comm = WORLD.Dup()
    numbers = np.eye(EXPERTS)  # row r chooses the experts r and r + 1
    router = 2 * numbers + np.roll(numbers, 1, axis=1)
    up, down = np.ones((EXPERTS, EXPERTS, 2)), np.ones((EXPERTS, 2, EXPERTS))
    layer = ExpertParallel(router, up, down, comm=comm, top_k=top_k, capacity=EXPERTS)
    with pycoll.traffic() as forward:
        _, saved = layer.forward(numbers)
    with pycoll.traffic() as backward:
        layer.backward(numbers, saved)
    comm.Free()
    for sent, line in ((forward, "Sent in `forward`"), (backward, "Sent in `backward`")):
        text = re.search(rf"{line}: (.*?)\.\n", ExpertParallel.__doc__).group(1)
        assert sent.nbytes == eval(text, {"p": SIZE, "E": EXPERTS, "k": top_k, "Z": numbers.nbytes})


def test_wrong_arguments():
    router, up, down = weights()
    with pytest.raises(ValueError, match=rf"top_k={EXPERTS + 1} is not between 1 and {EXPERTS}, the number of experts"):
        ExpertParallel(router, up, down, top_k=EXPERTS + 1)
    with pytest.raises(ValueError, match="capacity=0 is not positive"):
        ExpertParallel(router, up, down, capacity=0)
    with pytest.raises(ValueError, match="3 tokens cannot be divided into 2 groups"):
        ExpertParallel(router, up, down, groups=2).forward(np.ones((3, WIDTH)))
    if SIZE > 1:
        with pytest.raises(ValueError, match=rf"{SIZE - 1} experts .* {SIZE} ranks; change .* to a multiple of {SIZE}"):
            ExpertParallel(router[:, : SIZE - 1], up[: SIZE - 1], down[: SIZE - 1])


def test_the_gradient_has_the_dtype_of_the_rows():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    layer = ExpertParallel(*(array.astype(bfloat16) for array in weights()), top_k=2, capacity=4.0)
    x = np.ones((4, WIDTH), bfloat16)
    y, saved = layer.forward(x)
    assert y.dtype == layer.backward(x, saved).dtype == bfloat16
