"""DistributedDataParallel: equality with training in one process, buckets and their views, clipping, errors."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.parallel import SGD, Adam, DistributedDataParallel, average_gradients, clip_by_global_norm
from pycoll.runtime import progress
from pycoll.schedule.registry import algorithms_of
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
several = pytest.mark.skipif(SIZE == 1, reason="there is nobody to differ from")
WIDTHS = (6, 5, 4, 2)
BUCKETS = {"one each": 1, "some": 200, "one for all": 25 << 20}


def sizes(limit):
    return {"bucket_bytes": limit, "first_bucket_bytes": limit}


def network(seed=0):
    numbers = np.random.default_rng(seed)
    return {
        f"{n}.{part}": numbers.normal(size=shape)
        for n, (width, out) in enumerate(itertools.pairwise(WIDTHS))
        for part, shape in (("weight", (width, out)), ("bias", (out,)))
    }


def batch(step, rank, rows=3):
    numbers = np.random.default_rng([step, rank])
    return numbers.normal(size=(rows, WIDTHS[0])), numbers.normal(size=(rows, WIDTHS[-1]))


def batches(step, ranks):
    """Return the batches of several ranks as one batch."""
    return [np.concatenate(parts) for parts in zip(*(batch(step, rank) for rank in ranks))]


def backward(parameters, inputs, targets):
    """Yield the name and the gradient of each parameter for half the mean squared error, last layer first."""
    layers, outputs = len(WIDTHS) - 1, [inputs]
    for n in range(layers):
        outputs.append(np.tanh(outputs[n] @ parameters[f"{n}.weight"] + parameters[f"{n}.bias"]))
    error = (outputs[-1] - targets) / len(inputs)
    for n in reversed(range(layers)):
        error = error * (1 - outputs[n + 1] ** 2)
        yield f"{n}.bias", error.sum(axis=0)
        yield f"{n}.weight", outputs[n].T @ error
        error = error @ parameters[f"{n}.weight"].T


def momentum(parameter, gradient, memory, step):
    memory[0] = 0.9 * memory[0] + gradient
    parameter -= 0.2 * memory[0]


def adam(parameter, gradient, memory, step):
    memory[0] = 0.9 * memory[0] + 0.1 * gradient
    memory[1] = 0.999 * memory[1] + 0.001 * gradient**2
    mean, square = memory[0] / (1 - 0.9 ** (step + 1)), memory[1] / (1 - 0.999 ** (step + 1))
    parameter -= 0.01 * mean / (np.sqrt(square) + 1e-8)


OPTIMIZERS = {
    "momentum": (momentum, lambda parameters: SGD(parameters, lr=0.2, momentum=0.9)),
    "adam": (adam, lambda parameters: Adam(parameters, lr=0.01)),
}


def alone(active, update=momentum):
    """Yield the parameters after each step of one process, which uses the batches of the active ranks as one."""
    parameters = network()
    memory = {name: [0.0, 0.0] for name in parameters}
    for step, ranks in enumerate(active):
        for name, gradient in dict(backward(parameters, *batches(step, ranks))).items():
            update(parameters[name], gradient, memory[name], step)
        yield {name: array.copy() for name, array in parameters.items()}


def assert_near(ours, theirs, relative=1e-10):
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=relative * np.abs(array).max())


def assert_replicas(arrays):
    """Assert that the arrays have the same bits on all ranks."""
    assert len(set(WORLD.allgather(b"".join(array.tobytes() for array in arrays.values())))) == 1


def exact(name, step=0, rank=RANK, shape=(4,), dtype=float):
    """Return whole numbers whose average over up to 8 ranks is whole, so that the order of summation has no effect."""
    numbers = np.random.default_rng([step, rank, *name.encode()])
    return (840 * numbers.integers(-4, 5, shape)).astype(dtype)


def mean(name, step=0, ranks=range(SIZE), of=None, **given):
    """Return the sum of `exact` over `ranks`, divided by `of`, or by the number of all ranks."""
    zero = np.zeros(given.get("shape", (4,)), given.get("dtype", float))
    return sum((exact(name, step, rank, **given) for rank in ranks), zero) / zero.dtype.type(of or SIZE)


def vectors(names="abcd"):
    return {name: np.zeros(4) for name in names}


class Counting:
    """A hook that records the buckets for which it is run."""

    def __init__(self):
        self.started, self.buckets = [], {}

    def __call__(self, bucket):
        self.started.append(bucket.index)
        self.buckets[bucket.index] = bucket
        yield bucket.allreduce(bucket.vector, pycoll.AVG)


@pytest.mark.parametrize("limit, optimizer", [("one each", "adam"), ("some", "momentum"), ("one for all", "momentum")])
def test_training_is_that_of_one_process(limit, optimizer):
    update, make = OPTIMIZERS[optimizer]
    parameters = network(seed=RANK)
    with DistributedDataParallel(parameters, **sizes(BUCKETS[limit])) as ddp:
        rule = make(parameters)
        for step, expected in enumerate(alone([range(SIZE)] * 50, update)):
            for name, gradient in backward(parameters, *batch(step, RANK)):
                ddp.ready(name, gradient)
            rule.step(ddp.synchronize())
            assert_replicas(parameters)
            assert_near(parameters, expected)


@pytest.mark.parametrize("algorithm", [None, *algorithms_of("allreduce")])
def test_replicas_are_the_same_by_every_algorithm(algorithm):
    parameters = network(seed=RANK)
    with DistributedDataParallel(parameters, algorithm=algorithm, **sizes(200)) as ddp:
        rule = SGD(parameters, lr=0.2, momentum=0.9)
        for step, expected in enumerate(alone([range(SIZE)] * 5)):
            rule.step(ddp.average_gradients(dict(backward(parameters, *batch(step, RANK)))))
            assert_replicas(parameters)
            assert_near(parameters, expected)


def test_begins_with_parameters_and_buffers_of_rank_0():
    parameters, buffers = network(seed=RANK), {"seen": np.array(RANK + 5), "mean": np.full(3, RANK, "f4")}
    with DistributedDataParallel(parameters, buffers) as ddp:
        assert all(ddp.parameters[name] is array for name, array in parameters.items())
    for name, array in network(seed=0).items():
        np.testing.assert_array_equal(parameters[name], array)
    assert buffers["seen"] == 5 and not buffers["mean"].any()


def test_on_a_part_of_the_ranks():
    part = WORLD.Split(RANK % 2)
    ranks = range(RANK % 2, SIZE, 2)
    for comm in (part, pycoll.Comm(part)):
        with DistributedDataParallel(vectors(), comm=comm) as ddp:
            averages = ddp.average_gradients({name: exact(name) for name in "abcd"})
            for name in "abcd":
                np.testing.assert_array_equal(averages[name], mean(name, ranks=ranks, of=len(ranks)))
    part.Free()


@pytest.mark.parametrize("limit", BUCKETS.values(), ids=BUCKETS)
def test_another_order_of_gradients_on_each_rank(limit):
    names, orders, hook = list(network()), random.Random(RANK), Counting()
    shapes = {name: array.shape for name, array in network().items()}
    with DistributedDataParallel(network(), hook=hook, **sizes(limit)) as ddp:
        for step in range(20):
            for name in orders.sample(names, len(names)):
                ddp.ready(name, exact(name, step, shape=shapes[name]))
            averages = ddp.synchronize()
            assert list(averages) == names
            for name, average in averages.items():
                np.testing.assert_array_equal(average, mean(name, step, shape=shapes[name]))
        assert hook.started == list(range(len(hook.buckets))) * 20


arrays = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["f8", "f4", "f2", "c16"])), min_size=1, max_size=8)
limits = st.sampled_from([1, 64, 300, 1 << 20])


@examples(15)
@given(arrays, limits, limits, st.randoms(use_true_random=False))
def test_any_arrays_in_any_buckets(together, kinds, limit, first, order):
    together(any_arrays_in_any_buckets, kinds, limit, first, order)


def any_arrays_in_any_buckets(kinds, limit, first, order):
    given = {f"p{n}": {"shape": (size,), "dtype": dtype} for n, (size, dtype) in enumerate(kinds)}
    parameters = {name: np.zeros(**kind) for name, kind in given.items()}
    names = order.sample(list(given), len(given))
    names = names[RANK % len(names) :] + names[: RANK % len(names)]
    with DistributedDataParallel(parameters, bucket_bytes=limit, first_bucket_bytes=first) as ddp:
        for step in range(2):
            for name in names:
                ddp.ready(name, exact(name, step, **given[name]))
            averages = ddp.synchronize()
            for name, kind in given.items():
                assert averages[name].dtype == kind["dtype"]
                np.testing.assert_array_equal(averages[name], mean(name, step, **kind))


def test_averages_are_views_into_the_buckets():
    parameters, hook, seen = network(), Counting(), []
    with DistributedDataParallel(parameters, hook=hook, **sizes(200)) as ddp:
        for step in range(3):
            averages = ddp.average_gradients(dict(backward(parameters, *batch(step, RANK))))
            for name, average in averages.items():
                homes = [bucket.vector for bucket in hook.buckets.values() if name in bucket.views]
                assert [np.shares_memory(average, vector) for vector in homes] == [True]
                assert np.shares_memory(average, ddp.gradients[name])
            seen.append([average.ctypes.data for average in averages.values()])
    assert seen[0] == seen[1] == seen[2]
    assert 1 < len(hook.buckets) < len(parameters)


def test_gradients_computed_where_they_are_averaged():
    parameters = network()
    with DistributedDataParallel(parameters, **sizes(200)) as ddp:
        rule = SGD(parameters, lr=0.2, momentum=0.9)
        for step, expected in enumerate(alone([range(SIZE)] * 10)):
            views = ddp.gradients
            assert list(views) == list(parameters)
            for name, gradient in backward(parameters, *batch(step, RANK)):
                np.add(gradient, 0, out=views[name])
                ddp.ready(name, views[name])
            rule.step(ddp.synchronize())
            assert_near(parameters, expected)


def test_gradients_of_other_layouts_and_dtypes():
    parameters = {"wide": np.zeros((3, 2), "f4"), "scalar": np.zeros(()), "none": np.zeros((0, 3))}
    with DistributedDataParallel(parameters) as ddp:
        ddp.ready("none", np.empty((0, 3)))
        ddp.ready("wide", exact("w", shape=(2, 3)).T)
        ddp.ready("scalar", np.float32(840 * RANK))
        averages = ddp.synchronize()
        np.testing.assert_array_equal(averages["wide"], mean("w", shape=(2, 3)).T)
        assert averages["wide"].dtype == np.float32
        assert averages["scalar"] == 420 * (SIZE - 1) and averages["scalar"].shape == ()
        assert averages["none"].shape == (0, 3)
        with pytest.raises(TypeError, match="imaginary parts would be lost in float64"):
            ddp.ready("scalar", np.array(1j))


def test_a_missing_gradient_is_an_error():
    """The error is raised only on the rank that lacks the gradient, which can then announce it."""
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        for step in range(2):
            for name in "ca" if RANK == 0 else "dcba":
                ddp.ready(name, exact(name, step))
            if RANK == 0:
                with pytest.raises(RuntimeError, match=r"ready was not called for 'b', 'd'; .*find_unused"):
                    ddp.synchronize()
                for name in "bd":
                    ddp.ready(name, exact(name, step))
            for name, average in ddp.synchronize().items():
                np.testing.assert_array_equal(average, mean(name, step))


def test_wrong_announcements():
    """Errors on one rank have no effect: this rank can continue with valid announcements."""
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        ddp.ready("d", exact("d"))
        if RANK == SIZE - 1:
            with pytest.raises(ValueError, match="'e' is not a parameter"):
                ddp.ready("e", np.zeros(4))
            with pytest.raises(ValueError, match="'d' already has a gradient in this step"):
                ddp.ready("d", np.zeros(4))
            for shape in [(), (1,), (1, 4), (5,)]:
                with pytest.raises(ValueError, match=r"'c' has shape \(.*, but its parameter has \(4,\)"):
                    ddp.ready("c", np.zeros(shape))
        for name in "cba":
            ddp.ready(name, exact(name))
        if RANK == 0:
            with pytest.raises(ValueError, match="'a' already has a gradient in this step"):
                ddp.ready("a", np.zeros(4))
        for name, average in ddp.synchronize().items():
            np.testing.assert_array_equal(average, mean(name))


DIFFERENCES = {
    "another name": ({"a": 3, "x": 2, "c": 1}, 1, "'x': float64 (2,)"),
    "another order": ({"a": 3, "c": 1, "b": 2}, 1, "'c': float64 (1,)"),
    "another shape": ({"a": (3, 1), "b": 2, "c": 1}, 0, "'a': float64 (3, 1)"),
    "another dtype": ({"a": 3, "b": "f4", "c": 1}, 1, "'b': float32 ()"),
    "one less": ({"a": 3, "b": 2}, 2, "nothing"),
    "one more": ({"a": 3, "b": 2, "c": 1, "d": 5}, 3, "'d': float64 (5,)"),
    "none": ({}, 0, "nothing"),
}
COMMON = {"a": 3, "b": 2, "c": 1}


def made(kinds):
    return {name: np.zeros((), kind) if isinstance(kind, str) else np.zeros(kind) for name, kind in kinds.items()}


@several
@pytest.mark.parametrize("culprit", sorted({0, SIZE - 1}))
@pytest.mark.parametrize("difference", DIFFERENCES)
@pytest.mark.parametrize("what", ["parameter", "buffer"])
def test_differences_between_ranks(what, difference, culprit):
    kinds, place, wrong = DIFFERENCES[difference]
    arrays = made(kinds if culprit == RANK else COMMON)
    right = [f"{name!r}: float64 ({size},)" for name, size in COMMON.items()] + ["nothing"]
    zero, other = (wrong, right[place]) if culprit == 0 else (right[place], wrong)
    with pytest.raises(ValueError) as raised:
        DistributedDataParallel(*[arrays] if what == "parameter" else [{"weight": np.zeros(3)}, arrays])
    differing = 1 if culprit == 0 else culprit
    assert str(raised.value) == f"{what} {place} differs between ranks: rank 0 has {zero}, rank {differing} has {other}"


@several
def test_options_that_differ_between_ranks():
    odd = {"bucket_bytes": 1000, "first_bucket_bytes": 8} if RANK == SIZE - 1 else {"bucket_bytes": 1000}
    with pytest.raises(ValueError, match=r"^option 1 .* rank 0 has first_bucket_bytes=1000, .*first_bucket_bytes=8$"):
        DistributedDataParallel(vectors(), **odd)


def test_nothing_is_sent_before_all_gradients_are_checked():
    """A gradient of `average_gradients` that is refused leaves the driver as it was."""
    with DistributedDataParallel(vectors(), **sizes(1)) as ddp:
        right = {name: exact(name) for name in "abcd"}
        for wrong in ({"e": np.zeros(4)}, {"a": np.zeros(5)}, {"a": exact("a") * 1j}):
            with pytest.raises((ValueError, TypeError), match=r"'e' is not|has shape|has dtype complex128"):
                ddp.average_gradients(right | wrong)
        for name, average in ddp.average_gradients(right).items():
            np.testing.assert_array_equal(average, mean(name))


@pytest.mark.skipif(SIZE < 3, reason="takes two ranks that differ from rank 0")
def test_the_first_of_several_differences_is_named():
    kinds = {1: {"a": 3, "b": 2}, 2: {"a": 3, "b": 7, "c": 1}}
    with pytest.raises(ValueError, match=r"^parameter 1 .* rank 0 has 'b': .*\(2,\), rank 2 has 'b': .*\(7,\)$"):
        DistributedDataParallel(made(kinds.get(RANK, COMMON)))


def test_wrong_arguments():
    for name, wrong in itertools.product(["bucket_bytes", "first_bucket_bytes"], [0, -1]):
        with pytest.raises(ValueError, match=f"^{name}={wrong} "):
            DistributedDataParallel(vectors(), **{name: wrong})
    for parameters in ([np.zeros(3)], {"a": [1.0]}, {1: np.zeros(3)}):
        with pytest.raises(TypeError, match=r"^parameters"):
            DistributedDataParallel(parameters)
    readonly = np.zeros(3)
    readonly.flags.writeable = False
    for array in (np.zeros((3, 2)).T, readonly):
        with pytest.raises(ValueError, match=r"^parameters\['a'\]"):
            DistributedDataParallel({"a": array})
        with pytest.raises(ValueError, match=r"^buffers\['a'\]"):
            DistributedDataParallel({}, {"a": array})


@pytest.mark.parametrize("name", ["bucket_bytes", "first_bucket_bytes"])
def test_sizes_of_buckets_are_checked(name):
    for wrong in ("25MB", 2.5):
        with pytest.raises(TypeError, match=f"^{name}={wrong!r} is not an integer: pass the number of bytes$"):
            DistributedDataParallel({"a": np.ones(3)}, **{name: wrong})
    with pytest.raises(ValueError, match=f"^{name}=0 is not a positive number of bytes$"):
        DistributedDataParallel({"a": np.ones(3)}, **{name: 0})


def test_the_size_of_a_message_is_checked():
    with pytest.raises(TypeError, match=r"^bucket_bytes='25MB' is not an integer: pass the number of bytes$"):
        average_gradients({"a": np.ones(3)}, bucket_bytes="25MB")
    with pytest.raises(ValueError, match=r"^bucket_bytes=-1 is not a positive number of bytes$"):
        average_gradients({"a": np.ones(3)}, bucket_bytes=-1)


def test_without_parameters():
    with DistributedDataParallel({}) as ddp:
        assert ddp.gradients == ddp.synchronize() == ddp.average_gradients({}) == {}
    assert average_gradients({}) == {}


@pytest.mark.parametrize("share", [0.5, 2.0], ids=["too long", "short enough"])
def test_clipping_by_the_global_norm(share):
    kinds = {"a": ("f8", 1), "b": ("f4", 1), "c": ("c16", 1 + 2j)}
    mine = {name: factor * exact(name, dtype=dtype) for name, (dtype, factor) in kinds.items()}
    expected = {name: factor * mean(name, dtype=dtype) for name, (dtype, factor) in kinds.items()}
    norm = np.linalg.norm(np.concatenate(list(expected.values())))
    with DistributedDataParallel({name: np.zeros(4, dtype) for name, (dtype, _) in kinds.items()}) as ddp:
        averages = ddp.average_gradients(mine)
        assert np.isclose(ddp.clip_grad_norm(share * norm), norm, rtol=1e-12)
        for name, average in averages.items():
            np.testing.assert_allclose(average, min(1, share) * expected[name], rtol=1e-6)
        with pytest.raises(ValueError, match="max_norm=-1 is negative"):
            ddp.clip_grad_norm(-1)


@pytest.mark.parametrize("limit", BUCKETS.values(), ids=BUCKETS)
def test_averages_without_a_driver(limit):
    kinds = {"a": ((3, 2), "f8"), "b": ((), "f8"), "c": ((5,), "f4"), "d": ((0, 2), "f8"), "e": ((4,), "c16")}
    given = {name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in kinds.items()}
    gradients = {name: np.asarray(exact(name, **kind)) for name, kind in given.items()}
    gradients["a"] = np.asfortranarray(gradients["a"])
    arrays = dict(gradients)
    assert average_gradients(gradients, WORLD, limit) is gradients
    for name, array in arrays.items():
        assert gradients[name] is array
        np.testing.assert_array_equal(array, mean(name, **given[name]))


def test_integers_have_no_average():
    """Averaging integers is an error, and leaves nothing in flight."""
    integers = {"a": np.full(3, float(RANK)), "b": np.full(3, RANK), "c": np.full(3, RANK, "f4")}
    with pytest.raises(TypeError, match="has dtype int64, which cannot be averaged"):
        average_gradients(integers)
    assert not progress.tasks
    WORLD.Barrier()
    pycoll.barrier()
    assert all((array == RANK).all() for array in integers.values())


@pytest.mark.parametrize("given", [np.float64(3), np.broadcast_to(3.0, 2)], ids=["scalar", "read-only"])
@pytest.mark.parametrize("function", [average_gradients, lambda gradients: clip_by_global_norm(gradients, 1, WORLD)])
def test_gradients_that_cannot_be_changed_in_place(function, given):
    gradients = {"a": np.full(2, 3.0 + RANK), "b": given}
    with pytest.raises(ValueError, match=r"^gradients\['b'\] is read-only$"):
        function(gradients)
    assert not progress.tasks
    assert (gradients["a"] == 3 + RANK).all()


def test_many_made_and_freed():
    for turn in range(2100 if SIZE == 1 else 60):
        with DistributedDataParallel({"a": np.zeros(4)}) as ddp:
            averages = ddp.average_gradients({"a": np.full(4, 2.0 * turn)})
            assert (averages["a"] == 2 * turn).all()


def test_tensors_of_pytorch():
    """Tensors are used without a copy: parameters are updated in place, and gradients are read in place."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2, dtype=torch.float64)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    ddp = DistributedDataParallel(parameters)
    start = {name: WORLD.bcast(parameter.numpy().copy()) for name, parameter in parameters.items()}
    optimizer = SGD(parameters, lr=1.0)
    for name, parameter in reversed(parameters.items()):
        ddp.ready(name, torch.full_like(parameter, RANK))
    optimizer.step(ddp.synchronize())
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), start[name] - (SIZE - 1) / 2)
    ddp.free()
