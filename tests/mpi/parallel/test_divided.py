"""Checkpoints of divided parameters: other numbers of ranks, drivers, optimizers, errors."""

import numpy as np
import pytest
from mpi4py import MPI

from pycoll.parallel import Adam, DividedParameters, FullyShardedDataParallel, load, save
from pycoll.parallel.tensor import block
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
AXES = {"a": 0, "b": 1, "c": 2}


def whole():
    numbers = np.random.default_rng(1)
    shape = (2 * SIZE, 3 * SIZE, SIZE)
    return {name: numbers.normal(size=shape) for name in (*AXES, "same")}


def divided(arrays, comm):
    parameters = {name: block(array, comm, AXES[name]) if name in AXES else array for name, array in arrays.items()}
    return DividedParameters(parameters, {name: (axis, comm) for name, axis in AXES.items()}, comm=comm)


@pytest.fixture
def path(tmp_path_factory):
    return WORLD.bcast(tmp_path_factory.mktemp("checkpoint") / "saved" if RANK == 0 else None)


def test_other_numbers_of_ranks(path):
    model = divided(whole(), WORLD)
    optimizer = Adam(model.parameters)
    optimizer.step({name: array + 1 for name, array in model.parameters.items()})
    save(path, model, optimizer, {"step": 7})
    one = divided({name: np.zeros_like(array) for name, array in whole().items()}, MPI.COMM_SELF)
    again = Adam(one.parameters)
    assert load(path, one, again) == {"step": 7}
    for name, axis in AXES.items():
        np.testing.assert_array_equal(block(one.parameters[name], WORLD, axis), model.parameters[name])
        np.testing.assert_array_equal(block(again.state["mean"][name], WORLD, axis), optimizer.state["mean"][name])
    np.testing.assert_array_equal(one.parameters["same"], model.parameters["same"])
    assert again.steps == optimizer.steps
    for each in (model, one):
        each.free()


def test_a_sharded_driver_can_load(path):
    with divided(whole(), WORLD) as model:
        save(path, model)
    with FullyShardedDataParallel({name: np.zeros_like(array) for name, array in whole().items()}) as driver:
        load(path, driver)
        for name, array in driver.state_dict().items():
            np.testing.assert_array_equal(array, whole()[name])


@pytest.mark.parametrize("axis", [0, 1])
def test_scalars_and_arrays_without_elements(path, axis):
    shapes = {"scalar": (), "whole": (2, 0, 1), "rows": (0, 3), "columns": (3, 0)}

    def model(value):
        parameters = {name: np.full(shape, value) for name, shape in shapes.items()}
        return DividedParameters(parameters, dict.fromkeys(["rows", "columns"], (axis, WORLD)))

    with model(2.0) as driver, model(0.0) as other:
        optimizer, again = Adam(driver.parameters), Adam(other.parameters)
        optimizer.step(driver.parameters)
        save(path, driver, optimizer)
        load(path, other, again)
        assert other.parameters["scalar"] == driver.parameters["scalar"] != 0
        assert again.steps == optimizer.steps


def test_replicas_need_not_write(path):
    arrays = whole()
    with DividedParameters(arrays, {}, writes=RANK == SIZE - 1) as model:
        save(path, model)
        for array in arrays.values():
            array[...] = 0
        load(path, model)
    for name, array in whole().items():
        np.testing.assert_array_equal(arrays[name], array)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"divided\['x'\]: there is no such parameter"):
        DividedParameters({"a": np.ones(2)}, {"x": (0, WORLD)})
    with pytest.raises(ValueError, match=r"divided\['a'\]: axis 1 of shape \(2,\) does not exist"):
        DividedParameters({"a": np.ones(2)}, {"a": (1, WORLD)})
