"""Pipelines: equality with one process for all schedules, bytes sent, errors."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, Pipeline
from pycoll.schedule.pipeline import SCHEDULES
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
WIDTH, ROWS, BATCHES, LAYERS = 5, 4 * SIZE, 2 * SIZE, 2 * SIZE


class Layer:
    """``tanh(x @ weight)``."""

    def __init__(self, number):
        self.parameters = {f"{number}": np.random.default_rng(number).normal(size=(WIDTH, WIDTH))}
        self.gradients = {f"{number}": np.zeros((WIDTH, WIDTH))}
        (self.weight,), (self.gradient,) = self.parameters.values(), self.gradients.values()

    def forward(self, x):
        y = np.tanh(x @ self.weight)
        return y, (x, y)

    def backward_input(self, dy, saved):
        x, y = saved
        inner = dy * (1 - y * y)

        def weights():
            self.gradient += x.T @ inner

        return inner @ self.weight.T, weights


class Chunk:
    """Several layers."""

    def __init__(self, layers):
        self.layers = layers

    def forward(self, x):
        saved = []
        for layer in self.layers:
            x, kept = layer.forward(x)
            saved.append(kept)
        return x, saved

    def backward_input(self, dy, saved):
        later = []
        for layer, kept in zip(reversed(self.layers), reversed(saved), strict=True):
            dy, weights = layer.backward_input(dy, kept)
            later.append(weights)
        return dy, lambda: [weights() for weights in later]

    def backward(self, dy, saved):
        dy, weights = self.backward_input(dy, saved)
        weights()
        return dy


def loss(y, targets):
    return float(np.square(y - targets).mean()), 2 * (y - targets) / y.size


def train(layers, chunks, comm, schedule, micro_batches):
    """Train for 20 steps; return the losses."""
    parameters = {name: array for layer in layers for name, array in layer.parameters.items()}
    gradients = {name: array for layer in layers for name, array in layer.gradients.items()}
    optimizer, pipe = (
        SGD(parameters, lr=0.2),
        Pipeline(chunks, loss, comm=comm, schedule=schedule, micro_batches=micro_batches),
    )
    losses = []
    for step in range(20):
        numbers = np.random.default_rng([step % 3, 5])
        x, targets = numbers.normal(size=(ROWS, WIDTH)), np.tanh(numbers.normal(size=(ROWS, WIDTH)))
        first, last = comm.rank == 0, comm.rank == comm.size - 1
        losses.append(pipe.step(x if first else None, targets if last else None))
        optimizer.step(gradients)
        for gradient in gradients.values():
            gradient[...] = 0
    pipe.free()
    return losses


def divided(count):
    """Return the layers of this rank, and as chunks."""
    pieces = np.array_split(np.arange(LAYERS), SIZE * count)[RANK::SIZE]
    chunks = [Chunk([Layer(number) for number in piece]) for piece in pieces]
    return [layer for chunk in chunks for layer in chunk.layers], chunks


@pytest.mark.parametrize("schedule, count", [(name, 2 if name == "interleaved" else 1) for name in SCHEDULES])
def test_training_is_that_of_one_process(schedule, count):
    alone = [Layer(number) for number in range(LAYERS)]
    expected = train(alone, [Chunk(alone)], MPI.COMM_SELF, "gpipe", 1)
    layers, chunks = divided(count)
    found = train(layers, chunks, WORLD, schedule, BATCHES)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert expected[-1] < expected[0]
    for layer in layers:
        for name, array in layer.parameters.items():
            np.testing.assert_allclose(array, alone[int(name)].weight, rtol=0, atol=1e-10)


@pytest.mark.parametrize("schedule, count", [(name, 2 if name == "interleaved" else 1) for name in SCHEDULES])
def test_bytes_are_those_of_the_docstring(schedule, count):
    _, chunks = divided(count)
    pipe = Pipeline(chunks, loss, schedule=schedule, micro_batches=BATCHES)
    batch = np.ones((ROWS, WIDTH))
    pipe.step(batch, batch)
    with pycoll.traffic() as besides:
        pycoll.allgather(np.array([False]), comm=WORLD)
        pycoll.allreduce(np.zeros(1), comm=WORLD)
    with pycoll.traffic() as sent:
        pipe.step(batch, batch)
    text = re.search(r"in a step: (.*?), for", Pipeline.__doc__).group(1)
    wanted = eval(text, {"s": RANK, "p": SIZE, "v": count, "Z": batch.nbytes})
    assert sent.nbytes == wanted + besides.nbytes
    pipe.free()


def test_the_receiver_needs_no_shape():
    """Check that activations may have other shapes and dtypes than inputs, and not contiguous ones."""

    class Transpose:
        def forward(self, x):
            return x[:, :2].astype(np.float32).T.repeat(3, 0).T[::2], x

        def backward(self, dy, x):
            assert dy.shape[1] == 6
            assert dy.dtype == np.float32
            return np.zeros_like(x)

    batch = np.ones((2**SIZE, 7))
    pipe = Pipeline([Transpose()], loss)
    for _ in range(2):
        pipe.step(batch, np.ones(1, np.float32))
    pipe.free()


def test_long_activations():
    """Check activations that are sent in several pieces."""

    class Add:
        def forward(self, x):
            return x + 1, x

        def backward(self, dy, x):
            return dy

    batch = np.arange(60000.0).reshape(2, -1) + RANK
    seen = []
    pipe = Pipeline([Add()], lambda y, targets: (seen.append(y) or 0.0, y), micro_batches=2)
    pipe.step(batch, batch)
    pipe.free()
    if RANK == SIZE - 1:
        np.testing.assert_array_equal(np.concatenate(seen), np.arange(60000.0).reshape(2, -1) + SIZE)


@pytest.mark.parametrize("schedule, count", [(name, 2 if name == "interleaved" else 1) for name in SCHEDULES])
def test_batches_of_other_shapes(schedule, count):
    """Check each loss against one process; the last batch also has another dtype."""
    batches = [np.random.default_rng(n).normal(size=(n * BATCHES, WIDTH)) for n in (2, 2, 1, 3)]
    batches.append(batches[0].astype(np.float32))
    alone = Chunk([Layer(number) for number in range(LAYERS)])
    _, chunks = divided(count)
    pipe = Pipeline(chunks, loss, schedule=schedule, micro_batches=BATCHES)
    for batch in batches:
        expected, _ = loss(alone.forward(batch)[0], batch)
        assert pipe.step(batch, batch) == pytest.approx(expected, rel=1e-6)
    pipe.free()


def test_micro_batches_of_different_shapes():
    if SIZE == 1:
        pytest.skip("nothing is sent")

    class Odd(Chunk):
        def forward(self, x):
            return x[: 2 - int(x[0, 0])], None

    pipe = Pipeline([Odd([])], loss, schedule="gpipe", micro_batches=2)
    if RANK == 0:
        with pytest.raises(ValueError, match=r"micro-batch 1 has shape \(1, 1\) and dtype float64, not \(2, 1\)"):
            pipe.step(np.repeat([[0.0], [1.0]], 2, 0), None)
    else:
        pycoll.allgather(np.array([False]), comm=pipe.comm)


def test_batches_without_an_axis():
    pipe = Pipeline([Chunk([])], loss, micro_batches=1)
    with pytest.raises(TypeError if RANK == 0 else RuntimeError, match=r"inputs must be an array|rank 0 could not"):
        pipe.step(None, np.ones(2))
    pipe.free()


@pytest.mark.parametrize(
    "odd, found",
    [(lambda dy: dy.astype("f4"), "(2, 3) and dtype float32"), (lambda dy: dy[:, :1], "(2, 1) and dtype float64")],
    ids=["dtype", "shape"],
)
def test_gradients_that_do_not_fit_their_activations(odd, found):
    """Check that they are not sent: the last rank can still send the right one."""
    if SIZE == 1:
        pytest.skip("nothing is sent")
    seen = []

    class Chunk:
        def forward(self, x):
            return x + 1, None

        def backward(self, dy, saved):
            seen.append(dy)
            return odd(dy) if RANK == SIZE - 1 else dy

    pipe, batch = Pipeline([Chunk()], lambda y, targets: (0.0, y)), np.ones((2, 3))
    if RANK < SIZE - 1:
        pipe.step(batch, None)
        assert [dy.tolist() for dy in seen] == [np.full((2, 3), 7.0).tolist()]
    else:
        message = rf"chunks\[0\]: .* micro-batch 0 has shape {re.escape(found)}, .* has \(2, 3\) and dtype float64"
        with pytest.raises(ValueError, match=message):
            pipe.step(None, batch)
        pycoll.send(np.full((2, 3), 7.0), RANK - 1, 1, comm=pipe.comm)
        pycoll.allreduce(np.zeros(1), comm=pipe.comm)
        with pytest.raises(RuntimeError, match="an earlier step ended early on this rank, with ValueError"):
            pipe.step(None, batch)
    pipe.free()
    pipe.free()


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    seen = []

    class Double:
        def forward(self, x):
            return x * bfloat16(2), None

        def backward(self, dy, saved):
            seen.append(dy)
            return dy * bfloat16(2)

    batch = np.arange(8, dtype=bfloat16).reshape(4, 2)
    pipe = Pipeline([Double()], lambda y, targets: (float(y.sum()), np.ones_like(y)), micro_batches=2)
    for _ in range(2):
        assert pipe.step(batch, batch) == 2**SIZE * 28 / 2
    assert {dy.dtype for dy in seen} == {np.dtype(bfloat16)}
    assert {*np.concatenate(seen).ravel().tolist()} == {2.0 ** (SIZE - 1 - RANK) / 2}
    pipe.free()


def test_wrong_arguments():
    class Whole:
        forward = backward = None

    with pytest.raises(TypeError, match=r"chunks\[0\] has no method backward_input, which 'zb-h1' needs"):
        Pipeline([Whole()], loss, schedule="zb-h1")
    with pytest.raises(ValueError, match="schedule '1b' is unknown"):
        Pipeline([Whole()], loss, schedule="1b")


@pytest.mark.parametrize("name, culprit", [("inputs", 0), ("targets", SIZE - 1)])
def test_batches_that_cannot_be_divided(name, culprit):
    """Check that all ranks raise, and that the next batch is right."""
    pipe, batch = Pipeline([Chunk([])], loss, micro_batches=2), np.ones((4, 1))
    wrong = {"inputs": batch, "targets": batch} | {name: batch[1:]}
    kind, problem = ValueError, f"{name} of length 3 cannot be divided into 2 micro-batches"
    if culprit != RANK:
        kind, problem = RuntimeError, f"Pipeline.step: rank {culprit} could not divide its batch"
    with pytest.raises(kind, match=problem):
        pipe.step(**wrong)
    assert pipe.step(batch, batch) == 0
    pipe.free()
