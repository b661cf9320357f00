"""Tensor parallelism: equality with one process, gradients, bytes sent, errors."""

import re
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import clip_by_global_norm, tensor
from pycoll.parallel.tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabularyParallelEmbedding,
    block,
    enter_region,
    leave_region,
    vocabulary_parallel_cross_entropy,
)
from tests.derivatives import slope
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
TOKENS, WIDTH, HIDDEN, ROWS = 2 * SIZE, 6, 3 * SIZE, 2 * SIZE
AXES = {"table": 0, "up.weight": 1, "up.bias": 0, "down.weight": 0, "down.bias": None, "out.weight": 1}


class Model:
    """Embedding, two layers with tanh between them, and an output layer."""

    def __init__(self, comm, sequence=False):
        numbers = np.random.default_rng(1)
        draw = lambda *shape: numbers.normal(size=shape)  # noqa: E731
        options = {"comm": comm, "sequence": sequence}
        self.comm = comm
        self.embedding = VocabularyParallelEmbedding(draw(TOKENS, WIDTH), **options)
        self.up = ColumnParallelLinear(draw(WIDTH, HIDDEN), draw(HIDDEN), **options)
        self.down = RowParallelLinear(draw(HIDDEN, WIDTH), draw(WIDTH), **options)
        self.out = ColumnParallelLinear(draw(WIDTH, TOKENS), **options)
        self.layers = {"": self.embedding, "up.": self.up, "down.": self.down, "out.": self.out}

    def loss(self, tokens, targets, backward=True):
        x, embedded = self.embedding.forward(tokens)
        h, up = self.up.forward(x)
        activated = np.tanh(h)
        y, down = self.down.forward(activated)
        logits, out = self.out.forward(x + y)
        loss, gradient = vocabulary_parallel_cross_entropy(logits, targets, self.comm)
        if backward:
            dy = self.out.backward(gradient, out)
            dh = self.down.backward(dy, down) * (1 - activated**2)
            self.embedding.backward(dy + self.up.backward(dh, up), embedded)
        return loss

    def arrays(self, which="parameters"):
        return {
            prefix + name: array
            for prefix, layer in self.layers.items()
            for name, array in getattr(layer, which).items()
        }

    def step(self):
        gradients = self.arrays("gradients")
        for name, parameter in self.arrays().items():
            parameter -= 0.3 * gradients[name]
            gradients[name][...] = 0


def batch(step):
    numbers = np.random.default_rng([7, step])
    return numbers.integers(TOKENS, size=ROWS), numbers.integers(TOKENS, size=ROWS)


@pytest.mark.parametrize("sequence", [False, True])
def test_training_is_that_of_one_process(sequence):
    ours, alone = Model(WORLD, sequence), Model(MPI.COMM_SELF)
    first = None
    for _ in range(20):
        expected, found = alone.loss(*batch(0)), ours.loss(*batch(0))
        first = expected if first is None else first
        assert found == pytest.approx(expected, rel=1e-10)
        alone.step()
        ours.step()
    assert expected < first / 2  # it learns
    mine = ours.arrays()
    for name, whole in alone.arrays().items():
        wanted = whole if AXES[name] is None else block(whole, WORLD, AXES[name])
        np.testing.assert_allclose(mine[name], wanted, rtol=0, atol=1e-10 * np.abs(whole).max(), err_msg=name)


def test_clipping_counts_each_parameter_once():
    ours, alone = Model(WORLD), Model(MPI.COMM_SELF)
    for model in (ours, alone):
        model.loss(*batch(0))
    copies = {prefix + name: ranks for prefix, layer in ours.layers.items() for name, ranks in layer.copies.items()}
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in alone.arrays("gradients").values()))
    assert clip_by_global_norm(ours.arrays("gradients"), norm / 2, WORLD, copies=copies) == pytest.approx(norm)
    assert clip_by_global_norm(ours.arrays("gradients"), norm, WORLD, copies=copies) == pytest.approx(norm / 2)
    with pytest.raises(ValueError, match=r"copies\['bias'\]: there is no such gradient"):
        clip_by_global_norm({}, 1, WORLD, copies={"bias": 1})
    for wrong in (0, SIZE + 1):
        with pytest.raises(ValueError, match=rf"copies\['bias'\]={wrong} is not between 1 and {SIZE}"):
            clip_by_global_norm({"bias": np.ones(1)}, 1, WORLD, copies={"bias": wrong})


def test_gradients_by_finite_differences():
    model = Model(MPI.COMM_SELF)
    given = batch(3)
    model.loss(*given)
    gradients = model.arrays("gradients")
    for name, parameter in model.arrays().items():
        expected, direction = slope(partial(model.loss, *given, backward=False), parameter)
        assert expected == pytest.approx(np.vdot(gradients[name], direction), rel=1e-6), name


def rings():
    """Return a communicator on which all collectives are rings."""
    comm = pycoll.Comm(WORLD.Dup())
    comm.algorithm.update(Allreduce="ring", Allgather="ring", Reduce_scatter="ring")
    return comm


def formula(function, line, sequence=False):
    """Return the number of bytes from a line of a docstring, as a function of p and Z."""
    plain, _, divided = re.search(rf"{line}: (.*?)\.\n", function.__doc__).group(1).partition(", with `sequence` ")
    return lambda p, Z: eval(divided if sequence else plain, {"p": p, "Z": Z})


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("kind", [ColumnParallelLinear, RowParallelLinear, VocabularyParallelEmbedding])
def test_bytes_are_those_of_the_docstring(kind, sequence):
    comm = rings()
    whole = np.ones((ROWS, WIDTH))
    own = block(whole, comm) if sequence else whole
    if kind is VocabularyParallelEmbedding:
        layer = kind(np.ones((TOKENS, WIDTH)), comm=comm, sequence=sequence)
        x, dy = np.zeros(ROWS, int), own
    elif kind is RowParallelLinear:
        layer = kind(np.ones((HIDDEN, WIDTH)), comm=comm, sequence=sequence)
        x, dy = np.ones((ROWS, HIDDEN // SIZE)), own
    else:
        layer = kind(np.ones((WIDTH, HIDDEN)), comm=comm, sequence=sequence)
        x, dy = own, np.ones((ROWS, HIDDEN // SIZE))
    with pycoll.traffic() as forward:
        _, saved = layer.forward(x)
    with pycoll.traffic() as backward:
        layer.backward(dy, saved)
    assert forward.nbytes == formula(kind, "Sent in `forward`", sequence)(SIZE, whole.nbytes)
    assert backward.nbytes == formula(kind, "Sent in `backward`", sequence)(SIZE, whole.nbytes)
    comm.Free()


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("function", [enter_region, leave_region])
def test_bytes_of_regions(function, sequence):
    comm = rings()
    whole = np.ones((ROWS, WIDTH))
    x = block(whole, comm) if sequence and function is enter_region else whole
    with pycoll.traffic() as sent:
        function(x, comm, sequence)
    assert sent.nbytes == formula(function, "Sent", sequence)(SIZE, whole.nbytes)
    comm.Free()


@pytest.mark.parametrize("sequence", [False, True])
def test_regions_are_conjugate(sequence):
    """Check that the sum over ranks of <leave(x), y> is that of <x, enter(y)>: each is the transpose of the other."""
    numbers = np.random.default_rng([3, RANK])
    x = numbers.normal(size=(ROWS, 3))
    y = np.random.default_rng(4).normal(size=(ROWS, 3))  # the same on all ranks
    own = block(y, WORLD) if sequence else y
    left = np.vdot(leave_region(x, WORLD, sequence), own) / (1 if sequence else SIZE)
    right = np.vdot(x, enter_region(own, WORLD, sequence))
    assert WORLD.allreduce(left) == pytest.approx(WORLD.allreduce(right))


def test_bytes_of_cross_entropy():
    comm = rings()
    with pycoll.traffic() as sent:
        vocabulary_parallel_cross_entropy(np.ones((ROWS, 2)), np.zeros(ROWS, int), comm)
    assert sent.nbytes == formula(vocabulary_parallel_cross_entropy, "Sent")(SIZE, 8 * ROWS)
    comm.Free()


@pytest.mark.parametrize(("dtype", "count"), [("uint8", 128 * SIZE), ("uint16", 1 << 17), ("int8", 128 * SIZE)])
def test_tokens_in_a_narrow_dtype(dtype, count):
    """A token minus the first one of a rank has no room in the dtype."""
    count, tokens = -(-count // SIZE) * SIZE, np.array([0, 1, 127])
    table = np.arange(count, dtype=float)[:, None]
    rows, _ = VocabularyParallelEmbedding(table).forward(tokens.astype(dtype))
    np.testing.assert_array_equal(rows, table[tokens])
    with pytest.raises(ValueError, match=r"tokens has shape \(1, 3\), but must have one axis"):
        VocabularyParallelEmbedding(table).forward(tokens[None])
    logits = block(np.random.default_rng(6).normal(size=(3, count)), WORLD, 1)
    found, gradient = vocabulary_parallel_cross_entropy(logits, tokens.astype(dtype), WORLD)
    expected, same = vocabulary_parallel_cross_entropy(logits, tokens, WORLD)
    assert found == expected
    np.testing.assert_array_equal(gradient, same)


def test_tokens_are_integers():
    with pytest.raises(TypeError, match="tokens has dtype float64, not that of integers"):
        VocabularyParallelEmbedding(np.ones((TOKENS, WIDTH))).forward(np.array([1.0]))


@pytest.mark.parametrize("ignored", [{}, {"ignore_index": 1}], ids=["default", "a token"])
def test_ignored_targets(ignored):
    """Check that rows with the ignored target count neither in the mean nor in the gradient."""
    logits = np.random.default_rng(5).normal(size=(6, TOKENS))
    index = ignored.get("ignore_index", -100)
    targets = np.array([0, index, TOKENS - 1, index, 0, TOKENS - 1])
    kept = targets != index
    expected, gradient = vocabulary_parallel_cross_entropy(logits[kept], targets[kept], MPI.COMM_SELF)
    found, own = vocabulary_parallel_cross_entropy(block(logits, WORLD, 1), targets, WORLD, **ignored)
    assert found == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(own[kept], block(gradient, WORLD, 1), rtol=1e-12)
    assert not own[~kept].any()


def test_only_ignored_targets():
    loss, gradient = vocabulary_parallel_cross_entropy(np.ones((2, 3)), np.full(2, -100), WORLD)
    assert np.isnan(loss)
    assert not gradient.any()


@pytest.mark.parametrize("wrong", [-100, -1, TOKENS])
def test_tokens_that_do_not_exist(wrong):
    """Check that all ranks raise before they send anything."""
    tokens = np.array([0, wrong, 1])
    embedding = VocabularyParallelEmbedding(np.ones((TOKENS, WIDTH)))
    refused = rf"tokens: {wrong} is not in 0 <= token < {TOKENS}"
    with pycoll.traffic() as sent:
        with pytest.raises(IndexError, match=refused):
            embedding.forward(tokens)
        with pytest.raises(IndexError, match=rf"targets: {wrong} is not in 0 <= token < {TOKENS}.*ignore_index=7"):
            vocabulary_parallel_cross_entropy(np.ones((3, 2)), tokens, ignore_index=7)
    assert not sent.nbytes


def test_what_cannot_be_divided():
    if SIZE == 1:
        pytest.skip("one rank can divide everything")
    with pytest.raises(ValueError, match=rf"{SIZE} ranks cannot divide axis 1 of length {SIZE + 1} into equal blocks"):
        ColumnParallelLinear(np.ones((2, SIZE + 1)))
    with pytest.raises(ValueError, match="axis 0"):
        RowParallelLinear(np.ones((SIZE + 1, 2)))
    with pytest.raises(ValueError, match=rf"{SIZE + 1} rows cannot be divided over {SIZE} ranks"):
        RowParallelLinear(np.ones((SIZE, 2)), sequence=True).forward(np.ones((SIZE + 1, 1)))


def test_a_block_of_each_rank():
    whole = np.arange(2 * SIZE)
    own = tensor.block(whole, WORLD)
    whole[...] = -1  # block copies, even with one rank
    assert own.tolist() == [2 * RANK, 2 * RANK + 1]
