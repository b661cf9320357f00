"""The drivers give the same results on parameters in GPU memory and in host memory."""

import shutil
import tempfile
from functools import partial

import numpy as np
import pytest

from pycoll.parallel import (
    SGD,
    Adam,
    Cast,
    DistributedDataParallel,
    FullyShardedDataParallel,
    ParameterServer,
    TopK,
    clip_by_global_norm,
    load,
    save,
)
from tests.gpu.api.test_collectives import produced
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
SHAPES = {"hidden.weight": (7, 5), "hidden.bias": (5,), "out.weight": (5, 3), "out.bias": (3,)}
STEPS = 4


def model():
    numbers = np.random.default_rng(1)
    return {name: numbers.normal(size=shape) for name, shape in SHAPES.items()}


def gradient(name, parameter, step):
    """Return a gradient that depends on the parameter, the step and the rank."""
    numbers = np.random.default_rng([step, RANK, list(SHAPES).index(name)])
    return 0.1 * parameter + numbers.normal(size=parameter.shape)


class OnDevice:
    """Arrays in GPU memory."""

    def __init__(self, xp):
        self.make = partial(produced, xp)

    @staticmethod
    def read(array):
        return array.get()


class OnHost:
    """Arrays in host memory."""

    make = staticmethod(np.array)
    read = staticmethod(np.array)


def gradients(place, parameters, step):
    return {name: place.make(gradient(name, place.read(array), step)) for name, array in parameters.items()}


def new(place, driver, **options):
    parameters = {name: place.make(array) for name, array in model().items()}
    return parameters, driver(parameters, **options)


def ddp(place, steps=STEPS, **options):
    parameters, driver = new(place, DistributedDataParallel, bucket_bytes=200, first_bucket_bytes=100, **options)
    optimizer = Adam(parameters, lr=0.1)
    for step in range(steps):
        for name, found in reversed(gradients(place, parameters, step).items()):
            driver.ready(name, found)
        averages = driver.synchronize()
        clip_by_global_norm(averages, 3.0)
        optimizer.step(averages)
    return driver, optimizer, parameters


def fsdp(place, steps=STEPS, **options):
    _, driver = new(place, FullyShardedDataParallel, **options)
    optimizer = Adam(driver.shards, lr=0.1)
    for step in range(steps):
        for unit in range(len(driver.units)):
            with driver.forward(unit):
                pass
        for unit in reversed(range(len(driver.units))):
            with driver.backward(unit) as parameters:
                for name, found in gradients(place, parameters, step).items():
                    driver.ready(name, found)
        optimizer.step(driver.synchronize())
    return driver, optimizer, driver.state_dict()


def server(place, steps=STEPS, **options):
    optimizer = partial(SGD, lr=0.1, momentum=0.9)
    parameters, driver = new(place, ParameterServer, optimizer=optimizer, colocated=True, **options)
    for step in range(steps):
        driver.step(gradients(place, parameters, step))
    driver.finish()
    return driver, None, parameters


def trained(train, place, **options):
    """Train, and return the final parameters in host memory."""
    driver, _, parameters = train(place, **options)
    assert all(type(array) is type(place.make(np.ones(1))) for array in parameters.values())
    found = {name: np.array(place.read(array)) for name, array in parameters.items()}
    driver.free()
    return found


def assert_same(ours, theirs, options):
    """Assert equality up to rounding, which is coarser if gradients or parameters are cast."""
    tolerance = {"atol": 1e-4} if "hook" in options or "param_dtype" in options else {"rtol": 1e-9, "atol": 1e-12}
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], **tolerance)


HOOKS = {"plain": {}, "cast": {"hook": Cast("float32")}, "top k": {"hook": TopK(0.3)}}
SHARDING = {"plain": {}, "offload": {"offload": True}, "cast": {"param_dtype": "float32"}}
SERVERS = {"plain": {}, "two": {"servers": 2, "mode": "bounded"}, "workers": {"update": "worker"}}


@pytest.mark.parametrize("options", HOOKS.values(), ids=HOOKS)
def test_distributed_data_parallel(xp, way, options):
    assert_same(trained(ddp, OnDevice(xp), **options), trained(ddp, OnHost, **options), options)


def test_gradients_from_several_streams(xp, way):
    """Each gradient is copied to its bucket on the stream that is current in its call to `ready`."""
    _, driver = new(OnDevice(xp), DistributedDataParallel)
    for name, shape in SHAPES.items():
        with xp.cuda.Stream(non_blocking=True):
            driver.ready(name, produced(xp, np.full(shape, RANK + 1.0)))
    for average in driver.synchronize().values():
        np.testing.assert_allclose(average.get(), np.full(average.shape, (SIZE + 1) / 2))
    driver.free()


@pytest.mark.parametrize("kind", [DistributedDataParallel, FullyShardedDataParallel, ParameterServer])
def test_one_memory_for_all(xp, way, kind):
    parameters = {"first": produced(xp, np.ones(3)), "second": np.ones(3)}
    with pytest.raises(TypeError, match=r"parameters\['second'\] is in host memory, but the first .* on GPU 0"):
        kind(parameters)
    _, driver = new(OnDevice(xp), DistributedDataParallel)
    with pytest.raises(TypeError, match=r"gradient of 'out.bias' is in host memory, but its parameter is on GPU 0"):
        driver.ready("out.bias", np.ones(3))
    driver.free()


@pytest.mark.parametrize("options", SHARDING.values(), ids=SHARDING)
def test_fully_sharded(xp, way, options):
    device = OnDevice(xp)
    if "offload" in options:  # the shards are in host memory
        driver, _, _ = fsdp(device, **options)
        assert all(isinstance(shard, np.ndarray) for shard in driver.shards.values())
        ours = driver.state_dict()
        driver.free()
    else:
        ours = trained(fsdp, device, **options)
    assert_same(ours, trained(fsdp, OnHost, **options), options)


@pytest.mark.parametrize("options", SERVERS.values(), ids=SERVERS)
def test_parameter_server(xp, way, options):
    if options.get("servers", 1) > SIZE:
        pytest.skip("too few ranks")
    assert_same(trained(server, OnDevice(xp), **options), trained(server, OnHost, **options), options)


@pytest.mark.parametrize("options", [{"mode": "async"}, {"mode": "bounded", "staleness": 1}], ids=["async", "stale"])
def test_a_server_that_does_not_wait(xp, way, options):
    """Runs may differ, but all ranks end with the same parameters."""
    found = trained(server, OnDevice(xp), **options)
    for name, array in found.items():
        assert np.isfinite(array).all()
        assert len(set(WORLD.allgather(array.tobytes()))) == 1, name


def test_checkpoints_go_from_the_gpu_to_the_host_and_back(xp, way):
    path = WORLD.bcast(tempfile.mkdtemp() if RANK == 0 else None)
    try:
        driver, optimizer, parameters = ddp(OnDevice(xp), steps=2)
        save(path, driver, optimizer)
        expected = {name: array.get() for name, array in parameters.items()}
        driver.free()
        for place, train in ((OnHost, ddp), (OnDevice(xp), ddp), (OnDevice(xp), fsdp)):
            driver, optimizer, parameters = train(place, steps=0)
            load(path, driver, optimizer)
            parameters = parameters if train is ddp else driver.state_dict()
            for name, array in parameters.items():
                np.testing.assert_array_equal(place.read(array), expected[name])
            driver.free()
    finally:
        WORLD.Barrier()
        if RANK == 0:
            shutil.rmtree(path)
