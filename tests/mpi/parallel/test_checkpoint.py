"""Checkpoints: training resumes where it stopped, in any driver, with any number of ranks."""

from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from pycoll import parallel
from pycoll.parallel import SGD, Adam, TopK, load, save
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
several = pytest.mark.skipif(SIZE == 1, reason="there is nobody else to serve, or to be left out")

SHAPES = {"hidden.weight": (7, 5), "hidden.bias": (5,), "scale": (), "out.weight": (5, 3), "out.bias": (3,)}
NAMES = list(SHAPES)
OPTIMIZERS = {
    "sgd": partial(SGD, lr=0.1),
    "momentum": partial(SGD, lr=0.1, momentum=0.9),
    "adam": partial(Adam, lr=0.05),
}


def model(seed=1, dtype="f8"):
    numbers = np.random.default_rng(seed)
    return {name: np.asarray(numbers.normal(size=shape), dtype) for name, shape in SHAPES.items()}


def gradients(parameters, step, rank):
    """Return gradients that depend on the parameters, and differ between ranks."""
    numbers = np.random.default_rng([step, rank])
    return {
        name: np.asarray(np.sin(array) + numbers.normal(size=array.shape), array.dtype)
        for name, array in parameters.items()
    }


def alone(optimizer, ranks):
    """Train in one process, and return the parameters; each step uses the batches of `ranks[step]` ranks.

    The formulas of the optimizers are written out.
    """
    parameters = model()
    memory = {name: [np.zeros(shape), np.zeros(shape)] for name, shape in SHAPES.items()}
    for step, count in enumerate(ranks, 1):
        found = [gradients(parameters, step - 1, rank) for rank in range(count)]
        for name, (first, second) in memory.items():
            gradient = sum(each[name] for each in found) / count
            if optimizer == "adam":
                first[...] = 0.9 * first + 0.1 * gradient
                second[...] = 0.999 * second + 0.001 * gradient**2
                root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
                parameters[name] -= 0.05 * first / (1 - 0.9**step) / root
            else:
                first[...] = (0.9 * first if optimizer == "momentum" else 0) + gradient
                parameters[name] -= 0.1 * first
    return parameters


class Replicas:
    """Training with DistributedDataParallel, and a buffer that follows a parameter."""

    def __init__(self, optimizer="adam", comm=WORLD, parameters=None, buffers=(), **options):
        self.parameters = model(seed=2) if parameters is None else parameters
        self.buffers = {name: np.zeros(5) for name in buffers}
        self.driver = parallel.DistributedDataParallel(self.parameters, self.buffers, comm=comm, **options)
        self.optimizer = OPTIMIZERS[optimizer](self.parameters)
        self.workers = comm.size

    def train(self, steps):
        for step in steps:
            self.optimizer.step(self.driver.average_gradients(gradients(self.parameters, step, self.driver.comm.rank)))
            for buffer in self.buffers.values():
                buffer[...] = 0.9 * buffer + self.parameters["hidden.bias"]

    def whole(self):
        return self.driver.state_dict()


class Sharded:
    """Training with FullyShardedDataParallel."""

    def __init__(self, optimizer="adam", comm=WORLD, parameters=None, **options):
        self.driver = parallel.FullyShardedDataParallel(
            model(seed=2) if parameters is None else parameters, comm=comm, **options
        )
        self.optimizer = OPTIMIZERS[optimizer](self.driver.shards)
        self.workers = comm.size

    def train(self, steps):
        units = range(len(self.driver.units))
        for step in steps:
            whole = {}
            for unit in units:
                with self.driver.forward(unit) as parameters:
                    whole |= {name: array.copy() for name, array in parameters.items()}
            found = gradients({name: whole[name] for name in NAMES}, step, self.driver.comm.rank)
            for unit in reversed(units):
                with self.driver.backward(unit) as parameters:
                    for name in parameters:
                        self.driver.ready(name, found[name])
            self.optimizer.step(self.driver.synchronize())

    def whole(self):
        return self.driver.state_dict()


class Served:
    """Training with ParameterServer."""

    def __init__(self, optimizer="adam", comm=WORLD, parameters=None, own=False, **options):
        self.parameters = model(seed=2) if parameters is None else parameters
        if not own:
            options["optimizer"] = OPTIMIZERS[optimizer]
        self.driver = parallel.ParameterServer(self.parameters, comm=comm, **options)
        self.optimizer = OPTIMIZERS[optimizer](self.parameters) if own and self.driver.roles.works else None
        self.workers = sum(map(len, self.driver.roles.workers))

    def train(self, steps):
        if self.driver.roles.works:
            for step in steps:
                averages = self.driver.step(gradients(self.parameters, step, self.driver.comm.rank))
                if self.optimizer:
                    self.optimizer.step(averages)
        else:
            self.driver.serve()
        self.driver.finish()

    def whole(self):
        return {name: array.copy() for name, array in self.parameters.items()}


SERVED = {
    "ps": {"colocated": True},
    "ps worker": {"colocated": True, "update": "worker"},
    "ps own": {"colocated": True, "update": "worker", "own": True},
}
if SIZE > 1:
    SERVED |= {
        "ps dedicated": {},
        "ps dedicated worker": {"update": "worker"},
        "ps dedicated own": {"update": "worker", "own": True},
        "ps two servers": {"colocated": True, "servers": 2},
        "ps pairs": {"colocated": True, "ranks_per_worker": 2},
        "ps pairs worker": {"colocated": True, "ranks_per_worker": 2, "update": "worker"},
    }
if SIZE > 2:
    SERVED |= {"ps two dedicated": {"servers": 2}, "ps pairs dedicated": {"ranks_per_worker": 2}}
KINDS = {
    "ddp": Replicas,
    "ddp buffers": partial(Replicas, buffers=["seen"]),
    "fsdp": Sharded,
    "fsdp one unit": partial(Sharded, units=[NAMES]),
    **{name: partial(Served, **options) for name, options in SERVED.items()},
}


def saved(run, directory, extra=None):
    save(directory, run.driver, run.optimizer, extra)


def loaded(run, directory):
    return load(directory, run.driver, run.optimizer)


def free(*runs):
    for run in runs:
        run.driver.free()


def assert_close(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=1e-10 * np.abs(array).max())


def assert_equal(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, strict=True)


MAIN = ["ddp", "fsdp", "ps", "ps worker"]


@pytest.mark.parametrize(
    "optimizer, kind", [*(("adam", kind) for kind in KINDS), *(("momentum", kind) for kind in MAIN)]
)
def test_goes_on_bit_for_bit(directory, kind, optimizer):
    extra = {"epoch": 3, "rates": [0.5, None, "é"]}
    run, resumed = (KINDS[kind](optimizer, parameters=parameters) for parameters in (model(), model(seed=2)))
    run.train(range(5))
    saved(run, directory, extra if RANK == 0 else None)
    assert loaded(resumed, directory) == extra
    assert_equal(resumed.whole(), run.whole())
    for steps in (range(5, 8), range(8, 10)):
        run.train(steps)
        resumed.train(steps)
        assert_equal(resumed.whole(), run.whole())
    ours = run.whole()
    ours.pop("seen", None)
    assert_close(ours, alone(optimizer, [run.workers] * 10))
    free(run, resumed)


BUCKETS = {"bucket_bytes": 100, "first_bucket_bytes": 100}


def test_what_a_hook_keeps_on_each_rank(directory):
    run, resumed = (Replicas("momentum", parameters=model(), hook=TopK(0.2), **BUCKETS) for _ in range(2))
    run.train(range(5))
    saved(run, directory)
    kept = {name: array.copy() for name, array in run.driver.private.items()}
    assert len(kept) > 1 and any(array.any() for array in kept.values())
    loaded(resumed, directory)
    assert_equal(resumed.driver.private, kept)
    for each in (run, resumed):
        each.train(range(5, 10))
    assert_equal(resumed.whole(), run.whole())
    assert_equal(resumed.driver.private, run.driver.private)
    free(run, resumed)


def test_back_to_the_beginning(directory):
    """Loading into a driver trained since also resets hook and optimizer state that did not exist at the save."""
    run = Replicas("momentum", parameters=model(), buffers=["seen"], hook=TopK(0.2))
    saved(run, directory)
    run.train(range(4))
    first = run.whole()
    loaded(run, directory)
    assert_equal({name: run.whole()[name] for name in NAMES}, model())
    assert set(run.optimizer.steps.values()) == {0}
    run.train(range(4))
    assert_equal(run.whole(), first)
    free(run)


@pytest.mark.parametrize("kind", ["fsdp", "ps"])
def test_back_to_an_earlier_step_in_the_same_driver(directory, kind):
    run = KINDS[kind]("adam", parameters=model())
    run.train(range(2))
    saved(run, directory)
    run.train(range(2, 5))
    later = run.whole()
    loaded(run, directory)
    assert_close(run.whole(), alone("adam", [run.workers] * 2))
    run.train(range(2, 5))
    assert_equal(run.whole(), later)
    free(run)


@pytest.mark.parametrize("source", MAIN)
def test_goes_on_in_another_driver(directory, source):
    run = KINDS[source](parameters=model())
    run.train(range(3))
    saved(run, directory)
    for target in (kind for kind in (KINDS if source == "fsdp" else MAIN) if kind != "ddp buffers"):
        other = KINDS[target]()
        loaded(other, directory)
        assert_equal(other.whole(), run.whole())
        other.train(range(3, 6))
        assert_close(other.whole(), alone("adam", [run.workers] * 3 + [other.workers] * 3))
        free(other)
    free(run)


@several
@pytest.mark.parametrize("kind", ["ddp buffers", "fsdp", "fsdp one unit", "ps", "ps worker"])
@pytest.mark.parametrize("ranks", sorted({1, SIZE - 1}))
def test_goes_on_at_another_number_of_ranks(directory, kind, ranks):
    few = WORLD.Split(0 if ranks > RANK else MPI.UNDEFINED)
    if few:
        run = KINDS[kind](parameters=model(), comm=few)
        run.train(range(3))
        saved(run, directory, ranks)
    WORLD.Barrier()
    more = KINDS[kind]()
    assert loaded(more, directory) == ranks
    ours = more.whole()
    if few:
        assert_equal(ours, run.whole())
    more.train(range(3, 6))
    saved(more, directory, SIZE)
    ours = more.whole()
    free(more)
    if few:
        assert loaded(run, directory) == SIZE
        assert_equal(run.whole(), ours)
        run.train(range(6, 8))
        ours = run.whole()
        ours.pop("seen", None)
        assert_close(ours, alone("adam", [ranks] * 3 + [SIZE] * 3 + [ranks] * 2))
        free(run)
        few.Free()


@several
def test_what_a_hook_keeps_is_not_for_other_ranks(directory):
    few = WORLD.Split(0 if RANK else MPI.UNDEFINED)
    if few:
        run = Replicas(parameters=model(), comm=few, hook=TopK(0.2))
        run.train(range(3))
        saved(run, directory)
        free(run)
        few.Free()
    WORLD.Barrier()
    more = Replicas(hook=TopK(0.2))
    loaded(more, directory)
    assert not any(array.any() for array in more.driver.private.values())
    more.train(range(3))
    free(more)


@pytest.mark.parametrize("kind", MAIN)
def test_half_precision(directory, kind):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    dtypes = {"hidden": bfloat16, "scale": "f2", "out": "f4"}
    run, resumed = (
        KINDS[kind]("momentum", parameters={name: a.astype(dtypes[name.split(".")[0]]) for name, a in model(n).items()})
        for n in (1, 2)
    )
    goes_on(directory, run, resumed)


def goes_on(directory, run, resumed):
    run.train(range(3))
    saved(run, directory)
    loaded(resumed, directory)
    for steps in (range(0), range(3, 6)):
        for each in (run, resumed):
            each.train(steps)
        assert_equal(resumed.whole(), run.whole())
    free(run, resumed)


def test_masters_of_what_is_computed_in_half_precision(directory):
    goes_on(directory, *(Sharded("adam", parameters=model(n, "f4"), param_dtype="float16") for n in (1, 2)))


@pytest.mark.parametrize("options", [{"mode": "async"}, {"mode": "bounded", "staleness": 2}], ids=["async", "bounded"])
def test_modes_whose_steps_depend_on_timing(directory, options):
    run, resumed = (Served(parameters=model(n), colocated=True, **options) for n in (1, 2))
    run.train(range(5))
    saved(run, directory)
    loaded(resumed, directory)
    assert_equal(resumed.whole(), run.whole())
    free(run, resumed)


def test_other_dtypes(directory):
    """Checkpoints can be loaded in another dtype: from double to single or half precision, and from half to single."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for source, target in (("f8", "f4"), ("f8", bfloat16), (bfloat16, "f4")):
        run, other = (
            Replicas("momentum", parameters=model(dtype=source)),
            Sharded("momentum", parameters=model(2, target)),
        )
        run.train(range(2))
        saved(run, directory)
        loaded(other, directory)
        assert_equal(other.whole(), {name: array.astype(target) for name, array in run.whole().items()})
        for each in (run, other):
            each.driver.free()


def test_a_driver_alone(directory):
    """A driver can be saved without an optimizer, and be loaded without one even if it was saved."""
    run = Sharded(parameters=model())
    run.train(range(2))
    save(directory, run.driver)
    other = Replicas()
    assert load(directory, other.driver) is None
    assert_equal(other.whole(), run.whole())
    saved(run, directory)
    other.parameters["scale"][...] = 0
    load(directory, other.driver)
    assert_equal(other.whole(), run.whole())
    free(run, other)


@several
def test_another_optimizer_beside_servers_that_update(directory):
    """That of the servers takes precedence, also on workers, which have none."""
    weights = {"w": np.ones(4)}
    with parallel.ParameterServer(weights, optimizer=partial(SGD, lr=0.1, momentum=0.9)) as ps:
        other = SGD({"x": np.zeros(2)}, lr=0.1, momentum=0.9)
        ps.finish()
        save(directory, ps, other)
        weights["w"][...] = 0
        load(directory, ps, other)
        np.testing.assert_array_equal(weights["w"], np.ones(4))
