"""Attention with divided sequences: equality with one process, gradients, bytes sent, balance, errors."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.parallel import Attention, RingAttention, UlyssesAttention
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
KINDS = [UlyssesAttention, RingAttention]
SEQUENCES, LENGTH, HEADS, WIDTH = 2, 6 * SIZE, 2 * SIZE, 3


def whole_arrays(dtype=np.float64):
    """Return queries, keys, values and a gradient of the output, the same on all ranks."""
    numbers = np.random.default_rng(1)
    return [numbers.normal(size=(SEQUENCES, LENGTH, HEADS, WIDTH)).astype(dtype) for _ in range(4)]


def plain(q, k, v, causal):
    """Return the output by the formula of the paper."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.arange(scores.shape[2])[:, None] >= np.arange(scores.shape[3]), scores, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_one_rank(causal):
    q, k, v, dy = whole_arrays()
    attention = Attention(causal)
    y, saved = attention.forward(q, k, v)
    np.testing.assert_allclose(y, plain(q, k, v, causal), rtol=1e-10)
    direction = np.random.default_rng(2).normal(size=q.shape)
    for which, gradient in enumerate(attention.backward(dy, saved)):
        change = [1e-6 * direction * (each == which) for each in range(3)]
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
def test_bytes_are_those_of_the_docstring(kind):
    ours = kind()
    own = np.ones((SEQUENCES, LENGTH // SIZE, HEADS, WIDTH))
    with pycoll.traffic() as forward:
        y, saved = ours.forward(own, own, own)
    with pycoll.traffic() as backward:
        ours.backward(y, saved)
    assert forward.nbytes == formula(kind, "Sent in `forward`")(SIZE, own.nbytes)
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
    with pytest.raises(ValueError, match=rf"{SIZE + 1} heads cannot be divided over {SIZE} ranks; .*RingAttention"):
        UlyssesAttention().forward(wrong, wrong, wrong)
    with pytest.raises(ValueError, match=f"{2 * SIZE + 1} positions .* into {SIZE} equal pieces"):
        UlyssesAttention().positions(2 * SIZE + 1)
    with pytest.raises(ValueError, match=f"{3 * SIZE if SIZE % 2 else SIZE} positions .* into {2 * SIZE} equal pieces"):
        RingAttention().positions(3 * SIZE if SIZE % 2 else SIZE)


def test_an_odd_number_of_positions_on_a_rank():
    """Check that a causal ring, where each rank has two pieces of equal length, refuses what it cannot divide."""
    wrong = np.ones((1, 3, 2, 4))
    with pytest.raises(
        ValueError, match=f"3 positions on a rank .* change the length of the sequence to .* {2 * SIZE}"
    ):
        RingAttention().forward(wrong, wrong, wrong)
    y, _ = RingAttention(causal=False).forward(wrong, wrong, wrong)
    np.testing.assert_allclose(y, wrong)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_drawn_shapes(kind, data):
    """Check any shapes against one process; all ranks draw the same ones, because the profile is derandomised."""
    sequences, pieces, heads, width = (data.draw(st.integers(1, 3)) for _ in range(4))
    causal = data.draw(st.booleans())
    length = pieces * SIZE * (2 if causal else 1)
    numbers = np.random.default_rng([sequences, pieces, heads, width])
    arrays = numbers.normal(size=(4, sequences, length, heads * SIZE, width))
    alone, ours = Attention(causal), kind(causal=causal)
    places = ours.positions(length)
    q, k, v, dy = (np.ascontiguousarray(each[:, places]) for each in arrays)
    expected, kept = alone.forward(*arrays[:3])
    found, saved = ours.forward(q, k, v)
    np.testing.assert_allclose(found, expected[:, places], rtol=1e-10, atol=1e-10)
    for one, whole in zip(ours.backward(dy, saved), alone.backward(arrays[3], kept), strict=True):
        np.testing.assert_allclose(one, whole[:, places], rtol=1e-10, atol=1e-10)
