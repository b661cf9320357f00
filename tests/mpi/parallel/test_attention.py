"""Attention with divided sequences: equality with one process, gradients, bytes sent, balance, errors."""

import gc
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.base import settings
from pycoll.parallel import Attention, RingAttention, UlyssesAttention, attention
from pycoll.parallel.attention_shapes import agree
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
KINDS = [UlyssesAttention, RingAttention]
SEQUENCES, LENGTH, HEADS, WIDTH = 2, 6 * SIZE, 2 * SIZE, 3


def whole_arrays(dtype=np.float64):
    """Return queries, keys, values and a gradient of the output, the same on all ranks."""
    numbers = np.random.default_rng(1)
    return [numbers.normal(size=(SEQUENCES, LENGTH, HEADS, WIDTH)).astype(dtype) for _ in range(4)]


def plain(q, k, v, causal):
    """Return the output by the formula of the paper; heads of keys are repeated."""
    k, v = (np.repeat(each, q.shape[2] // k.shape[2], 2) for each in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.arange(scores.shape[2])[:, None] >= np.arange(scores.shape[3]), scores, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "keys, heads", [(LENGTH, HEADS), (LENGTH, 1), (LENGTH + 1, SIZE)], ids=["", "grouped", "cross"]
)
def test_attention_on_one_rank(causal, keys, heads):
    q, dy = whole_arrays()[2:]
    k, v = np.random.default_rng(3).normal(size=(2, SEQUENCES, keys, heads, WIDTH))
    attention = Attention(causal)
    y, saved = attention.forward(q, k, v)
    np.testing.assert_allclose(y, plain(q, k, v, causal), rtol=1e-10)
    for which, gradient in enumerate(attention.backward(dy, saved)):
        direction = np.random.default_rng(2).normal(size=gradient.shape)
        change = [1e-6 * direction if each == which else 0 for each in range(3)]
        above = np.vdot(dy, plain(q + change[0], k + change[1], v + change[2], causal))
        below = np.vdot(dy, plain(q - change[0], k - change[1], v - change[2], causal))
        assert np.vdot(gradient, direction) == pytest.approx((above - below) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-10), (np.float32, 1e-4)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_one_process(kind, causal, dtype, close):
    arrays, alone, ours = whole_arrays(dtype), Attention(causal), kind(WORLD, causal)
    places = ours.positions(LENGTH)
    assert sorted(np.concatenate(WORLD.allgather(places))) == list(range(LENGTH))
    *own, dy = (np.ascontiguousarray(each[:, places]) for each in arrays)
    expected, kept = alone.forward(*arrays[:3])
    found, saved = ours.forward(*own)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected[:, places], rtol=close, atol=close)
    for one, whole in zip(ours.backward(dy, saved), alone.backward(arrays[3], kept), strict=True):
        np.testing.assert_allclose(one, whole[:, places], rtol=close, atol=close)


def formula(kind, line):
    text = re.search(rf"{line}: (.*?)\.\n", kind.__doc__).group(1)
    return lambda p, Z: eval(text, {"p": p, "Z": Z})


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_docstring(kind, monkeypatch):
    monkeypatch.setattr(settings, "SHARED_MEMORY", False)  # they are those of messages
    comm = WORLD.Dup()
    ours = kind(comm)
    own = np.ones((SEQUENCES, LENGTH // SIZE, HEADS, WIDTH))
    with pycoll.traffic() as forward:
        y, saved = ours.forward(own, own, own)
    with pycoll.traffic() as backward:
        ours.backward(y, saved)
    with pycoll.traffic() as shapes:
        agree(own, own, own, comm)
    comm.Free()
    assert forward.nbytes == formula(kind, "Sent in `forward`")(SIZE, own.nbytes) + shapes.nbytes
    assert backward.nbytes == formula(kind, "Sent in `backward`")(SIZE, own.nbytes)


def test_ranks_do_the_same_work():
    """Count the pairs of positions whose scores are computed: those of a causal mask, spread evenly."""
    ours, work = RingAttention(), Counter()
    for source in range(SIZE):
        for mine, _, causal in ours._pairs(source, LENGTH // SIZE):
            piece = mine.stop - mine.start
            work[source] += piece * (piece + 1) // 2 if causal else piece * piece
    totals = WORLD.allgather(sum(work.values()))
    assert sum(totals) == LENGTH * (LENGTH + 1) // 2
    assert len(set(totals)) == 1
    piece = LENGTH // (2 * SIZE)
    assert all(count == 2 * piece * piece for source, count in work.items() if source != RANK)  # in each step, too


def test_what_cannot_be_divided():
    if SIZE == 1:
        pytest.skip("one rank can divide everything")
    wrong = np.ones((1, 2, SIZE + 1, 2))
    with pytest.raises(
        ValueError, match=rf"{SIZE + 1} heads of q cannot be divided over {SIZE} ranks; .*RingAttention"
    ):
        UlyssesAttention().forward(wrong, wrong, wrong)
    with pytest.raises(ValueError, match=f"{2 * SIZE + 1} positions .* into {SIZE} equal pieces"):
        UlyssesAttention().positions(2 * SIZE + 1)
    with pytest.raises(ValueError, match=f"{3 * SIZE if SIZE % 2 else SIZE} positions .* into {2 * SIZE} equal pieces"):
        RingAttention().positions(3 * SIZE if SIZE % 2 else SIZE)
    with pytest.raises(ValueError, match=f"{SIZE - 1 or 1} heads of k cannot be divided over {SIZE} ranks"):
        UlyssesAttention().forward(*(np.ones((1, 2, heads, 2)) for heads in (SIZE * (SIZE - 1), SIZE - 1, SIZE - 1)))


def test_an_odd_number_of_positions_on_a_rank():
    """Check that a causal ring, where each rank has two pieces of equal length, refuses what it cannot divide."""
    wrong = np.ones((1, 3, 2, 4))
    with pytest.raises(
        ValueError, match=f"3 positions on a rank .* change the length of the sequence to .* {2 * SIZE}"
    ):
        RingAttention().forward(wrong, wrong, wrong)
    y, _ = RingAttention(causal=False).forward(wrong, wrong, wrong)
    np.testing.assert_allclose(y, wrong)


def compare(alone, ours, whole, queries, keys):
    """Compare with one process; this rank has these places of the queries and of the keys."""
    q, k, v, dy = whole
    expected, kept = alone.forward(q, k, v)
    found, saved = ours.forward(q[:, queries], k[:, keys], v[:, keys])
    np.testing.assert_allclose(found, expected[:, queries], rtol=1e-10, atol=1e-10)
    gradients = ours.backward(dy[:, queries], saved)
    for one, of, places in zip(gradients, alone.backward(dy, kept), [queries, keys, keys], strict=True):
        np.testing.assert_allclose(one, of[:, places], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_drawn_shapes(kind, data):
    """Check any shapes against one process; all ranks draw the same ones, because the profile is derandomised."""
    sequences, pieces, heads, group, width = (data.draw(st.integers(1, 3)) for _ in range(5))
    causal = data.draw(st.booleans())
    others = pieces if causal else data.draw(st.integers(1, 3))
    queries, keys = (n * SIZE * (2 if causal else 1) for n in (pieces, others))
    numbers = np.random.default_rng([sequences, pieces, heads, width])
    q, dy = numbers.normal(size=(2, sequences, queries, group * heads * SIZE, width))
    k, v = numbers.normal(size=(2, sequences, keys, heads * SIZE, width))
    ours = kind(causal=causal)
    compare(Attention(causal), ours, (q, k, v, dy), ours.positions(queries), ours.positions(keys))


@given(data=st.data())
def test_rings_of_uneven_blocks(data):
    """Check blocks of any length; keys may have fewer heads than there are ranks."""
    queries, keys = ([data.draw(st.integers(least, 4)) for _ in range(SIZE)] for least in (0, 1))
    heads, group = (data.draw(st.integers(1, 3)) for _ in range(2))
    numbers = np.random.default_rng([heads, group])
    q, dy = numbers.normal(size=(2, 2, sum(queries), group * heads, 3))
    k, v = numbers.normal(size=(2, 2, sum(keys), heads, 3))
    own = (np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])[RANK] for lengths in (queries, keys))
    compare(Attention(False), RingAttention(causal=False), (q, k, v, dy), *own)


def arrays(q=(1, 2 * SIZE, 2 * SIZE, 3), k=(1, 2 * SIZE, 2 * SIZE, 3), v=None, dtype="f8"):
    return [np.ones(q), np.ones(k), np.ones(v or k, dtype)]


SOME = {"q": (1, 2 * SIZE, 2 * SIZE, 3), "k": (1, 2 * SIZE, 2 * SIZE, 3)}
WRONG = [
    ({"q": SOME["q"][:3]}, "q has 3 axes, not 4: sequences, positions, heads, width of a head"),
    ({"v": (1, SIZE, 2 * SIZE, 3)}, "k has shape .* but v has shape "),
    ({"dtype": "f4"}, "q, k and v have different dtypes: float64, float64, float32"),
    ({"k": (2, 2 * SIZE, 2 * SIZE, 3)}, "only the numbers of positions and heads may differ"),
    ({"k": (1, 0, 2 * SIZE, 3)}, "k has no positions"),
    (
        {"k": (1, 2 * SIZE, 2 * SIZE + 1, 3)},
        f"{2 * SIZE} heads, which is not a multiple of the {2 * SIZE + 1} heads of k",
    ),
]


@pytest.mark.parametrize("changes, problem", WRONG, ids=[problem[:12] for _, problem in WRONG])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_do_not_fit_on_one_rank(kind, changes, problem):
    """Check that all ranks raise, and that the next call is right."""
    ours = kind(causal=False)
    with pytest.raises(ValueError, match=f"on rank {SIZE - 1}, .*{problem}"):
        ours.forward(*arrays(**(changes if RANK == SIZE - 1 else {})))
    with pytest.raises(ValueError, match=problem):
        Attention().forward(*arrays(**changes))
    np.testing.assert_allclose(ours.forward(*arrays())[0], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_differ_between_ranks(kind):
    if SIZE == 1:
        pytest.skip("there is no other rank")
    heads = {"q": (1, 2 * SIZE, 4 * SIZE, 3)} if RANK else {}
    with pytest.raises(ValueError, match=r"on rank 0, but .* on rank 1: only the numbers of positions may differ"):
        kind(causal=False).forward(*arrays(**heads))
    longer = {"k": (1, 2 * SIZE + 2 * (RANK == 1), 2 * SIZE, 3)}
    for ours in [UlyssesAttention(), UlyssesAttention(causal=False), RingAttention()]:
        with pytest.raises(ValueError, match=rf"needs blocks of equal length, but k has {2 * SIZE}, {2 * SIZE + 2}"):
            ours.forward(*arrays(**longer))


def test_a_mask_needs_as_many_keys_as_queries():
    with pytest.raises(ValueError, match=rf"but a rank has {2 * SIZE} queries and {4 * SIZE} keys"):
        RingAttention().forward(*arrays(k=(1, 4 * SIZE, 2 * SIZE, 3)))


@pytest.mark.parametrize("function", ["_scores", "_gradients"], ids=["forward", "backward"])
def test_messages_that_arrive_after_an_exception(monkeypatch, function):
    """Check that they do not change memory that is allocated later."""
    comm = WORLD.Dup()
    for shape in [(1, 2, 1, 8), (1, 64, 2, 32), (1, 512, 2, 128)]:  # eager, and not
        ours, x = RingAttention(comm), np.ones(shape)
        y, saved = ours.forward(x, x, x)
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(attention, function, lambda *arguments: 1 / 0)
            ours.backward(y, saved) if function == "_gradients" else ours.forward(x, x, x)
        del ours, y, saved
        gc.collect()
        later = [np.zeros((2, *shape)) for _ in range(20)]
        for _ in range(20):
            WORLD.Barrier()
        assert not any(array.any() for array in later)
        comm = WORLD.Dup()


@pytest.mark.parametrize("kind", [Attention, *KINDS])
def test_a_gradient_of_another_shape(kind):
    ours = kind()
    y, saved = ours.forward(*arrays())
    with pytest.raises(ValueError, match=r"dy has shape .*, but the output has "):
        ours.backward(y[:, :1], saved)
    ours.backward(y, saved)


@pytest.mark.parametrize("kind", [Attention, *KINDS])
def test_gradients_have_the_dtype_of_their_arrays(kind):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v, dy = (np.ones((1, 2, 2 * SIZE, 4), bfloat16) for _ in range(4))
    layer = kind()
    y, saved = layer.forward(q, k, v)
    assert [array.dtype for array in (y, *layer.backward(dy, saved))] == [bfloat16] * 4
