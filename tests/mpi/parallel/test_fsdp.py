"""FullyShardedDataParallel: equality with training in one process, memory use, and bytes sent."""

import tracemalloc
from functools import lru_cache, partial

import numpy as np
import pytest

import pycoll
from pycoll.parallel import SGD, Adam, AdamW, FullyShardedDataParallel
from pycoll.runtime import progress
from pycoll.runtime.attach import attach
from tests.memory import traced_memory
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi

SHAPES = {
    "hidden.weight": (5, 7),
    "hidden.bias": (7,),
    "middle.weight": (7, 6),
    "middle.bias": (6,),
    "scale": (),
    "out.weight": (6, 3),
    "out.bias": (3,),
}
NAMES = list(SHAPES)
UNITS = {
    "by name": None,
    "one": [NAMES],
    "each": [[name] for name in NAMES],
    "uneven": [NAMES[:1], NAMES[1:6], NAMES[6:]],
}
ROWS = 4  # rows in the batch of each rank


def model(dtype="f8"):
    numbers = np.random.default_rng(1)
    return {name: np.asarray(numbers.normal(size=shape), dtype) for name, shape in SHAPES.items()}


def batch(step):
    numbers = np.random.default_rng([2, step])
    return numbers.normal(size=(ROWS * SIZE, 5)), numbers.normal(size=(ROWS * SIZE, 3))


def share(step):
    return [part[ROWS * RANK : ROWS * (RANK + 1)] for part in batch(step)]


def applied(name, parameter, values):
    if name.endswith("weight"):
        return values @ parameter
    return np.tanh(values + parameter) if name.endswith("bias") else values * parameter


def differentiated(name, parameter, before, after, error):
    """Return the gradients of a parameter and of the values to which it was applied."""
    if name.endswith("weight"):
        return before.T @ error, error @ parameter.T
    if name.endswith("bias"):
        error = error * (1 - after**2)
        return error.sum(axis=0), error
    return np.sum(error * before), error * parameter


def backward_pass(fsdp, values, targets):
    """Announce the gradients of half the mean squared error; each unit uses only parameters gathered for it."""
    places = {}
    for unit in range(len(fsdp.units)):
        with fsdp.forward(unit) as parameters:
            for name, parameter in parameters.items():
                places[name] = values, applied(name, parameter, values)
                values = places[name][1]
    error = (values - targets) / len(targets)
    for unit in reversed(range(len(fsdp.units))):
        with fsdp.backward(unit) as parameters:
            for name in reversed(parameters):
                gradient, error = differentiated(name, parameters[name], *places[name], error)
                fsdp.ready(name, gradient)


class Alone:
    """The model in one process, with the formulas of the optimizers written out."""

    def __init__(self):
        self.parameters, self.step = model(), 0
        self.memory = {name: [np.zeros(shape), np.zeros(shape)] for name, shape in SHAPES.items()}

    def gradients(self, values, targets):
        places, gradients = {}, {}
        for name, parameter in self.parameters.items():
            places[name] = values, applied(name, parameter, values)
            values = places[name][1]
        error = (values - targets) / len(targets)
        for name in reversed(NAMES):
            gradients[name], error = differentiated(name, self.parameters[name], *places[name], error)
        return gradients

    def update(self, optimizer, gradients):
        self.step += 1
        for name, gradient in gradients.items():
            first, second = self.memory[name]
            if optimizer == "sgd":
                first[...] = 0.9 * first + gradient
                self.parameters[name] -= 0.05 * first
            else:
                first[...] = 0.9 * first + 0.1 * gradient
                second[...] = 0.999 * second + 0.001 * gradient**2
                mean, square = first / (1 - 0.9**self.step), second / (1 - 0.999**self.step)
                self.parameters[name] *= 1 - 0.01 * 0.1
                self.parameters[name] -= 0.01 * mean / (np.sqrt(square) + 1e-8)


OPTIMIZERS = {"sgd": partial(SGD, lr=0.05, momentum=0.9), "adamw": partial(AdamW, lr=0.01, weight_decay=0.1)}


@lru_cache
def trained_alone(optimizer, steps, passes=1):
    alone = Alone()
    for step in range(steps):
        found = [alone.gradients(*batch(passes * step + n)) for n in range(passes)]
        alone.update(optimizer, {name: sum(gradients[name] for gradients in found) for name in NAMES})
    return alone.parameters


def train(fsdp, optimizer, steps, passes=1):
    for step in range(steps):
        for n in range(passes):
            backward_pass(fsdp, *share(passes * step + n))
        optimizer.step(fsdp.synchronize())


def assembled(units, vectors, shapes=SHAPES, comm=WORLD):
    """Return the arrays assembled from the shards of all ranks."""
    whole = {}
    for number, names in enumerate(units):
        flat = np.concatenate(comm.allgather(np.asarray(vectors[str(number)])))
        for name in names:
            size = int(np.prod(shapes[name]))
            whole[name], flat = flat[:size].reshape(shapes[name]), flat[size:]
        assert len(flat) < comm.size and not flat.any()
    return whole


def assert_close(ours, theirs, relative=1e-10):
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        assert ours[name].shape == array.shape
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=relative * np.abs(array).max(initial=0))


def assert_equal(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, strict=True)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("units, steps", [("by name", 50), ("one", 50), ("each", 10), ("uneven", 10)])
def test_equals_training_in_one_process(units, steps, optimizer):
    with FullyShardedDataParallel(model(), UNITS[units]) as fsdp:
        train(fsdp, OPTIMIZERS[optimizer](fsdp.shards), steps)
        assert_close(assembled(fsdp.units, fsdp.shards), trained_alone(optimizer, steps))
        assert_equal(fsdp.state_dict(), assembled(fsdp.units, fsdp.shards))


@pytest.mark.parametrize(
    "options",
    [{"prefetch": False}, {"reshard_after_forward": False}, {"algorithm": "ring"}],
    ids=lambda options: next(iter(options)),
)
def test_options_equal_training_in_one_process(options):
    with FullyShardedDataParallel(model(), UNITS["each"], **options) as fsdp:
        train(fsdp, OPTIMIZERS["adamw"](fsdp.shards), 10)
        assert_close(fsdp.state_dict(), trained_alone("adamw", 10))


def test_the_parameters_are_those_of_rank_0():
    parameters = {name: np.asarray(array + RANK) for name, array in model().items()}
    with FullyShardedDataParallel(parameters) as fsdp:
        assert fsdp.units == [["hidden.weight", "hidden.bias"], ["middle.weight", "middle.bias"], ["scale"], NAMES[5:]]
        for array in parameters.values():
            array[...] = np.nan
        assert_equal(fsdp.state_dict(), model())
        for unit, names in enumerate(fsdp.units):
            with fsdp.forward(unit) as found:
                assert_equal(found, {name: model()[name] for name in names})


@pytest.mark.parametrize("prefetch", [True, False])
def test_the_next_unit_is_gathered_meanwhile(prefetch):
    with FullyShardedDataParallel(model(), UNITS["each"], prefetch=prefetch) as fsdp:
        for block, unit in ((fsdp.forward, 0), (fsdp.forward, 1), (fsdp.forward, 6), (fsdp.forward, 2)):
            with block(unit):
                assert (fsdp._parameters.holder(unit + 1) == unit + 1) == (prefetch and unit < 6)
                fsdp.progress()
        with fsdp.forward(3) as parameters:
            assert_equal(fsdp.state_dict(), model())
            assert_equal(parameters, {"middle.bias": model()["middle.bias"]})
        with fsdp.forward(6):
            assert not progress.tasks


def test_in_the_background():
    with pycoll.progress_thread(), FullyShardedDataParallel(model()) as fsdp:
        train(fsdp, OPTIMIZERS["sgd"](fsdp.shards), 5)
        assert_close(fsdp.state_dict(), trained_alone("sgd", 5))


@pytest.mark.parametrize("units", ["by name", "one", "each"])
@pytest.mark.parametrize("prefetch, reshard", [(True, True), (False, True), (True, False)])
def test_gradients_of_several_backward_passes_add_up(units, prefetch, reshard):
    options = {"prefetch": prefetch, "reshard_after_forward": reshard}
    with FullyShardedDataParallel(model(), UNITS[units], **options) as fsdp:
        train(fsdp, OPTIMIZERS["sgd"](fsdp.shards), 2, passes=3)
        assert_close(fsdp.state_dict(), trained_alone("sgd", 2, 3))
        for passes in (1, 2):  # sums start again in each step
            alone, expected = Alone(), {name: np.zeros(shape) for name, shape in SHAPES.items()}
            alone.parameters = fsdp.state_dict()
            for n in range(passes):
                backward_pass(fsdp, *share(n))
                more = alone.gradients(*batch(n))
                expected = {name: array + more[name] for name, array in expected.items()}
            assert_close(assembled(fsdp.units, fsdp.synchronize()), expected)


def announce(fsdp, gradients):
    for unit in reversed(range(len(fsdp.units))):
        with fsdp.backward(unit) as parameters:
            for name in parameters:
                fsdp.ready(name, gradients[name])


def spread(dtype="f8", factor=1.0):
    """Return gradients whose average over the ranks is `factor` times the model."""
    off = RANK - (SIZE - 1) / 2
    return {name: np.asarray((array + off / 8) * factor, dtype) for name, array in model().items()}


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_computes_in_half_precision_with_masters_in_single(name):
    half = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name)
    with FullyShardedDataParallel(model("f4"), param_dtype=name) as fsdp:
        optimizer = SGD(fsdp.shards, lr=2.0**-14)  # updates that half precision would round away
        for step in range(8):
            expected = {name: (array - step * 2.0**-14).astype("f4") for name, array in model("f4").items()}
            whole = fsdp.state_dict()
            assert_close(whole, expected, 1e-5)
            for unit, names in enumerate(fsdp.units):
                with fsdp.forward(unit) as parameters:
                    assert_equal(parameters, {name: whole[name].astype(half) for name in names})
            announce(fsdp, {name: np.ones(shape, half) for name, shape in SHAPES.items()})
            gradients = fsdp.synchronize()
            assert {gradient.dtype for gradient in gradients.values()} == {np.dtype("f4")}
            optimizer.step(gradients)


def test_gradients_are_averaged_in_the_dtype_of_the_shards():
    with FullyShardedDataParallel(model("f4"), param_dtype="float16") as fsdp:
        announce(fsdp, spread("f4"))
        assert_close(assembled(fsdp.units, fsdp.synchronize()), model("f4"), 1e-5)


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_are_averaged_in_another_dtype(passes):
    with FullyShardedDataParallel(model("f4"), reduce_dtype="float16") as fsdp:
        for _ in range(passes):
            announce(fsdp, spread("f4"))
        average = assembled(fsdp.units, fsdp.synchronize())
        assert_close(average, {name: passes * array for name, array in model("f4").items()}, 0.01)
        assert_equal({name: (a / passes).astype("f2").astype("f4") * passes for name, a in average.items()}, average)
        assert {vector.dtype for vector in fsdp.shards.values()} == {np.dtype("f4")}


@pytest.mark.skipif(SIZE == 1, reason="nothing cancels")
def test_gradients_are_averaged_in_double():
    with FullyShardedDataParallel({"a": np.zeros(3, "f4")}, reduce_dtype="f8") as fsdp:
        one = {0: 2.0**40, 1: 1 - 2.0**40}.get(RANK, 0.0)
        announce(fsdp, {"a": np.full(3, one)})
        assert_equal(assembled(fsdp.units, fsdp.synchronize(), {"a": 3}), {"a": np.full(3, 1 / SIZE, "f4")})


@pytest.mark.parametrize("prefetch, reshard, gathers", [(True, True, 12), (False, True, 13), (True, False, 7)])
def test_sends_a_share_of_each_unit_to_gather_and_to_reduce_it(prefetch, reshard, gathers):
    """Of seven units, the last ones are still gathered when the backward pass begins, and are not gathered again."""
    parameters = {f"{n}.weight": np.zeros((SIZE, 10), "f4") for n in range(7)}
    options = {"prefetch": prefetch, "reshard_after_forward": reshard, "algorithm": "ring"}
    for param_dtype, itemsize in ((None, 4), ("float16", 2)):
        with FullyShardedDataParallel(parameters, param_dtype=param_dtype, **options) as fsdp:
            with pycoll.traffic() as sent:
                for unit in range(7):
                    with fsdp.forward(unit):
                        pass
                announce(fsdp, parameters)
                fsdp.synchronize()
            assert sent.nbytes == (SIZE - 1) * 10 * (gathers * itemsize + 7 * 4)


def test_each_rank_keeps_its_share():
    with FullyShardedDataParallel(model(), UNITS["uneven"]) as fsdp:
        sizes = [35, 7 + 42 + 6 + 1 + 18, 3]
        optimizer = Adam(fsdp.shards)
        announce(fsdp, model())
        for held in (fsdp.shards, *optimizer.state.values(), fsdp.synchronize()):
            assert [len(held[str(unit)]) for unit in range(3)] == [-(-size // SIZE) for size in sizes]
            assert not any(isinstance(vector.base, np.ndarray) for vector in held.values())


def test_memory_falls_with_the_number_of_ranks():
    units, nbytes = 16, 1 << 16
    with traced_memory():
        whole = {f"{unit}.weight": np.zeros(nbytes // 8) for unit in range(units)}
        fsdp = FullyShardedDataParallel(whole)
        gradient = np.zeros(nbytes // 8)
        optimizer = Adam(fsdp.shards)
        for _ in range(2):
            announce(fsdp, dict.fromkeys(whole, gradient))
            optimizer.step(fsdp.synchronize())
        del whole
        arrays = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
        held = sum(trace.size for trace in arrays.traces)
        held += attach(fsdp.comm).registered.nbytes
    fsdp.free()
    shared = 4 * units * nbytes / SIZE  # parameters, averages, and two vectors of the optimizer
    constant = 2 * 2 * (nbytes + nbytes // SIZE)  # and those of two units that are gathered, and two being reduced
    # two gathered units, two units being reduced, and temporary memory for these
    assert shared <= held - nbytes < shared + 6 * nbytes + constant


def test_norms_are_clipped_over_all_shards():
    norm = np.sqrt(sum((array**2).sum() for array in model().values()))
    for most in (norm / 2, norm * 2, 0.0):
        with FullyShardedDataParallel(model()) as fsdp:
            announce(fsdp, spread())
            gradients = fsdp.synchronize()
            assert fsdp.clip_grad_norm(gradients, most) == pytest.approx(norm, rel=1e-12)
            scale = min(1.0, most / norm)
            assert_close(
                assembled(fsdp.units, gradients), {name: scale * array for name, array in model().items()}, 1e-5
            )
            with pytest.raises(ValueError, match="max_norm=-1"):
                fsdp.clip_grad_norm(gradients, -1)
