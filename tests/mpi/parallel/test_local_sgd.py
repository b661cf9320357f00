"""Local SGD and DiLoCo: formulas, checkpoints, bytes, errors."""

import contextlib
import re
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import SGD, Adam, DistributedDataParallel, LocalSGD, load, save
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
SHAPES = {"a": (4, 3), "b": (5,), "scale": ()}
DILOCO = partial(SGD, lr=0.7, momentum=0.9, nesterov=True)


def start(rank=RANK):
    numbers = np.random.default_rng(rank)
    return {name: np.asarray(numbers.normal(size=shape)) for name, shape in SHAPES.items()}


def gradient(name, array, step, rank=RANK):
    return 0.1 * array + np.random.default_rng([step, rank, len(name)]).normal(size=array.shape)


def model(steps, every, outer=None):
    """Return the parameters of all ranks after some steps, computed on each rank for all ranks."""
    ranks = [start(0) for _ in range(SIZE)]
    last = start(0)
    velocity = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step in range(steps):
        for rank, parameters in enumerate(ranks):
            for name, array in parameters.items():
                array -= 0.1 * gradient(name, array, step, rank)
        if (step + 1) % every == 0:
            for name in SHAPES:
                difference = sum(last[name] - parameters[name] for parameters in ranks) / SIZE
                if outer is DILOCO:
                    velocity[name] = 0.9 * velocity[name] + difference
                    last[name] -= 0.7 * (difference + 0.9 * velocity[name])
                else:
                    last[name] -= difference
                for parameters in ranks:
                    parameters[name][...] = last[name]
    return ranks


def train(driver, optimizer, steps):
    for step in steps:
        optimizer.step({name: gradient(name, array, step) for name, array in driver.parameters.items()})
        assert driver.step() == ((step + 1) % driver.every == 0)


@pytest.mark.parametrize("outer", [None, DILOCO])
@pytest.mark.parametrize("every", [1, 3])
def test_parameters_follow_the_formulas(every, outer):
    with LocalSGD(start(), every, outer=outer) as driver:
        train(driver, SGD(driver.parameters, lr=0.1), range(10))
        for name, array in model(10, every, outer)[RANK].items():
            np.testing.assert_allclose(driver.parameters[name], array, rtol=1e-12, atol=1e-12)


@pytest.fixture
def path(tmp_path_factory):
    return WORLD.bcast(tmp_path_factory.mktemp("checkpoint") if RANK == 0 else None)


def test_a_checkpoint_continues(path):
    with LocalSGD(start(), 2, outer=DILOCO) as driver:
        train(driver, SGD(driver.parameters, lr=0.1), range(4))
        save(path, driver)
        train(driver, SGD(driver.parameters, lr=0.1), range(4, 5))
        with pytest.raises(RuntimeError, match="since the last average would be lost"):
            save(path, driver)
        train(driver, SGD(driver.parameters, lr=0.1), range(5, 8))
    with LocalSGD(start(RANK + 5), 2, outer=DILOCO) as other:
        load(path, other)
        train(other, SGD(other.parameters, lr=0.1), range(4, 8))
        for name, array in driver.parameters.items():
            np.testing.assert_array_equal(other.parameters[name], array)


def test_a_checkpoint_counts_the_steps_of_the_outer_optimizer(path):
    runs = [LocalSGD(start(), 2, outer=partial(Adam, lr=0.1)) for _ in range(2)]
    run, resumed = runs
    train(run, SGD(run.parameters, lr=0.1), range(4))
    save(path, run)
    load(path, resumed)
    assert resumed.outer.steps == dict.fromkeys(SHAPES, 2)
    for driver in runs:
        train(driver, SGD(driver.parameters, lr=0.1), range(4, 8))
    for name, array in run.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], array)
    for driver in runs:
        driver.free()


def trained(steps, comm=WORLD):
    """Return a driver and the optimizer of this rank, whose state differs from that of other ranks."""
    driver = LocalSGD(start(0), 2, comm=comm)
    optimizer = Adam(driver.parameters, lr=0.1)
    train(driver, optimizer, steps)
    return driver, optimizer


def assert_equal(ours, theirs):
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)


def test_a_checkpoint_holds_the_optimizers_of_all_ranks(path):
    run, optimizer = trained(range(4))
    if RANK == SIZE - 1:
        optimizer.steps["b"] += 7
    save(path, run, optimizer)
    resumed, other = trained(range(2))
    load(path, resumed, other)
    assert other.steps == optimizer.steps
    for kind, arrays in optimizer.state.items():
        assert_equal(other.state[kind], arrays)
    train(run, optimizer, range(4, 8))
    train(resumed, other, range(4, 8))
    assert_equal(resumed.parameters, run.parameters)
    run.free()
    resumed.free()


@pytest.mark.skipif(SIZE == 1, reason="there is no other number of ranks")
def test_other_ranks_get_the_optimizer_of_rank_0(path):
    few = WORLD.Split(0 if SIZE - 1 > RANK else MPI.UNDEFINED)
    if few:
        run, optimizer = trained(range(4), few)
        save(path, run, optimizer)
        run.free()
    state, steps = WORLD.bcast((optimizer.state, optimizer.steps) if few else None)
    driver, optimizer = trained(range(2))
    with pytest.warns(RuntimeWarning, match=f"is from {SIZE - 1} ranks") if RANK == 0 else contextlib.nullcontext():
        load(path, driver, optimizer)
    assert optimizer.steps == steps
    for kind, arrays in state.items():
        assert_equal(optimizer.state[kind], arrays)
    driver.free()


def test_another_driver_gets_the_optimizer_of_rank_0(path):
    run, optimizer = trained(range(4))
    save(path, run, optimizer)
    state, steps = WORLD.bcast((optimizer.state, optimizer.steps))
    with DistributedDataParallel(start(1)) as ddp:
        other = Adam(ddp.parameters)
        load(path, ddp, other)
        assert_equal(ddp.parameters, run.parameters)
        assert other.steps == steps
        for kind, arrays in state.items():
            assert_equal(other.state[kind], arrays)
        save(path, ddp, other)
    load(path, run, optimizer)
    for kind, arrays in state.items():
        assert_equal(optimizer.state[kind], arrays)
    run.free()


def test_a_checkpoint_is_loaded_between_averages(path):
    """Loading discards the steps since the last average."""
    with LocalSGD(start(), 3, outer=DILOCO) as driver:
        train(driver, SGD(driver.parameters, lr=0.1), range(3))
        save(path, driver)
        after = {name: array.copy() for name, array in driver.parameters.items()}
        train(driver, SGD(driver.parameters, lr=0.1), range(3, 5))
        load(path, driver)
        assert driver.steps == 0
        for name, array in driver.parameters.items():
            np.testing.assert_array_equal(array, after[name])


def test_bytes_are_those_of_the_docstring():
    parameters = {"a": np.zeros(1024 * SIZE)}
    with LocalSGD(parameters, 4) as driver:
        optimizer = Adam(parameters)
        with pycoll.traffic() as sent:
            for _ in range(8):
                optimizer.step({"a": np.ones(1024 * SIZE)})
                driver.step()
        text = re.search(r"`every` steps: (.*?), for", LocalSGD.__doc__).group(1)
        assert sent.nbytes == 2 * eval(text, {"p": SIZE, "Z": parameters["a"].nbytes})


def test_wrong_arguments():
    with pytest.raises(ValueError, match="every=0 is not a positive number of steps"):
        LocalSGD({"a": np.ones(1)}, 0)
    if SIZE > 1:
        with pytest.raises(ValueError, match="parameter 0 differs between ranks"):
            LocalSGD({"a": np.ones(1 + RANK)}, 1)
