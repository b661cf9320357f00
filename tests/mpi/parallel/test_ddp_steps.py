"""DistributedDataParallel: accumulation, unused parameters, steps that are dropped, `join`."""

import copy
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.parallel import SGD, Cast, DistributedDataParallel, Quantize, TopK
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE

from .test_ddp import (
    Counting,
    alone,
    assert_near,
    assert_replicas,
    backward,
    batch,
    exact,
    mean,
    network,
    sizes,
    vectors,
)
from .test_ddp_hooks import EVERYONE, HOOKS

pytestmark = pytest.mark.mpi


def test_accumulation_adds_up_and_sends_nothing():
    """Gradients add up without communication; ranks may take different numbers of micro-steps."""
    hook, micro = Counting(), 1 + RANK % 3
    with pycoll.traffic() as sent, DistributedDataParallel(vectors(), hook=hook, **sizes(1)) as ddp:
        for step in range(4):
            before = sent.messages
            with pytest.raises(RuntimeError, match="no_sync"), ddp.no_sync():
                for turn in range(micro):
                    for name in "dcba":
                        ddp.ready(name, exact(name, 10 * step + turn))
                ddp.synchronize()
            assert len(hook.started) == 4 * step and sent.messages == before
            averages = ddp.average_gradients({name: exact(name, 10 * step + micro) for name in "abcd"})
            for name in "abcd":
                sums = [exact(name, 10 * step + turn, rank) for rank in range(SIZE) for turn in range(2 + rank % 3)]
                np.testing.assert_array_equal(averages[name], sum(sums) / SIZE)


def test_accumulation_with_parameters_unused_in_the_last_micro_step():
    """Parameters may lack gradients in some micro-steps or on some ranks, without find_unused."""
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        for step in range(3):
            with ddp.no_sync():
                with ddp.no_sync():
                    ddp.ready("d", exact("d", step))
                ddp.ready("b", exact("b", step))
            with ddp.no_sync():
                ddp.ready("a", exact("a", step))
            for name in "dca" if RANK % 2 else "dcba":
                ddp.ready(name, exact(name, step))
            averages = ddp.synchronize()
            np.testing.assert_array_equal(averages["c"], mean("c", step))
            for name in "ad":
                np.testing.assert_array_equal(averages[name], 2 * mean(name, step))
            once, again = mean("b", step), mean("b", step, range(0, SIZE, 2))
            np.testing.assert_array_equal(averages["b"], once + again)


def test_parameters_without_a_gradient():
    """One parameter has no gradient on some ranks, one on all ranks; these change in each step."""
    with DistributedDataParallel(vectors(), find_unused=True, **sizes(1)) as ddp:
        for step in range(6):
            some, none = "abcd"[step % 4], "abcd"[(step + 1) % 4]
            for name in "dcba":
                if name != none and (name != some or RANK % 2 == 0):
                    ddp.ready(name, exact(name, step))
            averages = ddp.synchronize()
            assert list(averages) == [name for name in "abcd" if name != none]
            for name, average in averages.items():
                np.testing.assert_array_equal(average, mean(name, step, range(0, SIZE, 2 if name == some else 1)))
        assert ddp.synchronize() == {}


def test_accumulation_of_gradients_computed_where_they_are_averaged():
    """Gradients may be computed in `ddp.gradients`, and the step itself may have none."""
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        for step in range(3):
            with ddp.no_sync():
                for name, view in ddp.gradients.items():
                    np.copyto(view, exact(name, step))
                    ddp.ready(name, view)
                for name in "dcba":
                    ddp.ready(name, exact(name, 10 + step))
            for name, average in ddp.synchronize().items():
                np.testing.assert_array_equal(average, mean(name, step) + mean(name, 10 + step))


def test_accumulated_gradients_are_dropped():
    with pycoll.traffic() as sent, DistributedDataParallel(vectors()) as ddp:
        with ddp.no_sync():
            ddp.ready("a", np.full(4, np.nan))
        before = sent.nbytes
        ddp.zero_grad()
        assert sent.nbytes - before <= 8 * SIZE
        for name, average in ddp.average_gradients({name: exact(name) for name in "abcd"}).items():
            np.testing.assert_array_equal(average, mean(name))


@pytest.mark.parametrize("hook", [None, *HOOKS, Cast("float32"), Quantize(), TopK(0.5)])
@pytest.mark.parametrize("limit", [1, 64])
def test_steps_are_dropped(hook, limit):
    """Averages and the state of hooks are those without the dropped steps, which may differ between ranks."""
    options = {**sizes(limit)} if hook is None else {"hook": hook, **sizes(limit)}
    with DistributedDataParallel(vectors(), **options) as ddp, DistributedDataParallel(vectors(), **options) as other:
        for step in range(5):
            with ddp.no_sync():
                ddp.ready("b", np.full(4, np.inf))
            for name in "dcba"[: (step + RANK) % 5]:
                ddp.ready(name, np.full(4, np.nan))
            ddp.zero_grad()
            ddp.zero_grad()
            averages, expected = (each.average_gradients(vectors_of(step)) for each in (ddp, other))
            for name in "abcd":
                np.testing.assert_array_equal(averages[name], expected[name])
        for name, array in other.private.items():
            np.testing.assert_array_equal(ddp.private[name], array)


def vectors_of(step):
    return {name: exact(name, step) for name in "abcd"}


def test_a_step_is_dropped_after_an_error_in_synchronize():
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        for step in range(2):
            ddp.ready("d", np.ones(4))
            with pytest.raises(RuntimeError, match="ready was not called for 'a', 'b', 'c'"):
                ddp.synchronize()
            ddp.zero_grad()
            for name, average in ddp.average_gradients(vectors_of(step)).items():
                np.testing.assert_array_equal(average, mean(name, step))


def test_steps_of_joined_ranks_are_not_dropped():
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp, ddp.join():
        for step in range(1 + RANK):
            with ddp.no_sync():
                ddp.ready("a", np.ones(4))
            ddp.zero_grad()
            ddp.ready("d", exact("d", step))
            with pytest.raises(RuntimeError, match="cannot be dropped within join"):
                ddp.zero_grad()
            for name in "cba":
                ddp.ready(name, exact(name, step))
            for name, average in ddp.synchronize().items():
                active = range(step, SIZE)
                np.testing.assert_allclose(average, mean(name, step, active, of=len(active)), rtol=1e-14)


LENGTHS = {
    "falling": [SIZE - rank for rank in EVERYONE],
    "rising": list(EVERYONE),
    "the last alone": [0] * (SIZE - 1) + [3],
    "none": [0] * SIZE,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_ranks_with_different_numbers_of_steps(lengths):
    """Steps equal those of one process with the batches of the active ranks; all ranks end with equal parameters."""
    active = [[rank for rank in EVERYONE if lengths[rank] > step] for step in range(max(lengths))]
    expected = [network(), *alone(active)]
    parameters, buffers = network(RANK), {"steps": np.array(0)}
    with DistributedDataParallel(parameters, buffers, **sizes(200)) as ddp:
        rule = SGD(parameters, lr=0.2, momentum=0.9)
        with ddp.join():
            for step in range(lengths[RANK]):
                for name, gradient in backward(parameters, *batch(step, RANK)):
                    ddp.ready(name, gradient)
                rule.step(ddp.synchronize())
                buffers["steps"] += 1
                assert_near(parameters, expected[step + 1])
        assert_replicas(parameters)
        assert_near(parameters, expected[-1])
        assert buffers["steps"] == max(lengths)
        for step in range(2):  # now with all ranks again
            averages = ddp.average_gradients(dict(backward(parameters, *batch(step, RANK))))
            gradients = [dict(backward(parameters, *batch(step, rank))) for rank in EVERYONE]
            for name, average in averages.items():
                np.testing.assert_allclose(average, sum(one[name] for one in gradients) / SIZE, rtol=0, atol=1e-14)


def test_joined_twice_and_with_an_error():
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        for _ in range(2):
            with ddp.join():
                for step in range(1 + RANK):
                    active = range(step, SIZE)
                    averages = ddp.average_gradients({name: exact(name, step) for name in "abcd"})
                    for name, average in averages.items():
                        np.testing.assert_allclose(average, mean(name, step, active, of=len(active)), rtol=1e-14)
        with pytest.raises(KeyError), ddp.join():
            ddp.average_gradients(vectors())
            raise KeyError
        averages = ddp.average_gradients({name: exact(name) for name in "abcd"})
        np.testing.assert_array_equal(averages["a"], mean("a"))


def test_a_rank_that_ends_within_an_accumulation():
    """Its accumulated gradients are discarded, whether or not the other ranks take more steps."""
    lengths = [2 - rank % 2 for rank in EVERYONE]
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        with ddp.join():
            for step in range(lengths[RANK]):
                active = [rank for rank in EVERYONE if lengths[rank] > step]
                averages = ddp.average_gradients({name: exact(name, step) for name in "abcd"})
                np.testing.assert_allclose(averages["b"], mean("b", step, active, of=len(active)), rtol=1e-14)
            with ddp.no_sync():
                ddp.ready("b", np.full(4, np.nan))
        averages = ddp.average_gradients({name: exact(name) for name in "abcd"})
        np.testing.assert_array_equal(averages["b"], mean("b"))


def announced(seed, step, rank):
    """Return the names of the parameters with a gradient, for each micro-step of a step on a rank."""
    numbers = random.Random(f"{seed} {step} {rank}")
    return [[name for name in "dcba" if numbers.random() < 0.4] for _ in range(numbers.randint(1, 3))]


numbers_of_steps = st.lists(st.integers(0, 3), min_size=SIZE, max_size=SIZE)
hooks = st.sampled_from([Counting(), Cast("float32"), TopK(1), *HOOKS])


@examples(15)
@given(numbers_of_steps, hooks, st.sampled_from([1, 64, 1 << 20]), st.integers(0, 1000))
def test_all_of_it_together(together, lengths, hook, limit, seed):
    """Random numbers of steps and micro-steps, any subset of the parameters, and any hook."""
    together(all_of_it_together, lengths, hook, limit, seed)


def all_of_it_together(lengths, hook, limit, seed):
    parameters, expected = vectors(), vectors()
    with DistributedDataParallel(parameters, hook=copy.deepcopy(hook), find_unused=True, **sizes(limit)) as ddp:
        with ddp.join():
            for step in range(lengths[RANK]):
                *first, last = announced(seed, step, RANK)
                with ddp.no_sync():
                    for turn, names in enumerate(first):
                        for name in names:
                            ddp.ready(name, exact(name, 10 * step + turn))
                for name in random.Random(RANK).sample(last, len(last)):
                    ddp.ready(name, exact(name, 10 * step + len(first)))
                for name, average in ddp.synchronize().items():
                    parameters[name] -= average
                    assert name in used(seed, step, lengths)
        for step in range(max(lengths)):
            active = sum(length > step for length in lengths)
            for name, parts in used(seed, step, lengths).items():
                expected[name] -= sum(exact(name, *part) for part in parts) / active
        for name, array in expected.items():
            np.testing.assert_allclose(parameters[name], array, rtol=0, atol=1e-9)
        assert_replicas(parameters)


def used(seed, step, lengths):
    """Return the parameters with gradients in a step: for each name, the (step, rank) arguments of `exact`."""
    parts = {}
    for rank, length in enumerate(lengths):
        for turn, names in enumerate(announced(seed, step, rank) if length > step else []):
            for name in names:
                parts.setdefault(name, []).append((10 * step + turn, rank))
    return parts
