"""Checkpoints of several drivers in one directory: the meshes of the guide, locks, errors, modes of files."""

import os
import stat

import numpy as np
import pytest

from pycoll.parallel import (
    SGD,
    Adam,
    ColumnParallelLinear,
    DistributedDataParallel,
    DividedParameters,
    FullyShardedDataParallel,
    Mesh,
    RowParallelLinear,
    average_gradients,
    load,
    save,
)
from tests.mpi.native import RANK, SIZE, WORLD

from .test_checkpoint import Sharded, free, model, saved

pytestmark = pytest.mark.mpi
even = pytest.mark.skipif(SIZE % 2, reason="needs an even number of ranks")


@pytest.fixture
def directory(tmp_path_factory):
    return WORLD.bcast(tmp_path_factory.mktemp("checkpoint") / "saved" if RANK == 0 else None)


def sharded_inside(mesh):
    """Train as in the guide, on the outer and the inner axis of a mesh."""
    fsdp = FullyShardedDataParallel({"first.w": np.ones((6, 4)), "last.w": np.ones(5)}, comm=mesh["inside"])
    optimizer = SGD(fsdp.shards, lr=0.1, momentum=0.9)
    for unit, name in ((1, "last.w"), (0, "first.w")):
        with fsdp.backward(unit) as parameters:
            fsdp.ready(name, np.full(parameters[name].shape, 1.0 + mesh.coordinates["between"]))
    optimizer.step(average_gradients(fsdp.synchronize(), comm=mesh["between"]))
    return fsdp, optimizer


def files(directory):
    WORLD.Barrier()
    found = list(directory.iterdir())
    WORLD.Barrier()
    return found


@even
@pytest.mark.parametrize("named", [True, False], ids=["replicas", "each on its own"])
def test_replicas_of_shards(directory, named):
    """Check that each checkpoint is complete, whether one replica writes it or all of them."""
    with Mesh(between=2, inside=SIZE // 2) as mesh:
        fsdp, optimizer = sharded_inside(mesh)
        options = {"replicas": mesh["between"]} if named else {}
        for step in range(5):
            save(directory, fsdp, optimizer, step, **options)
            WORLD.Barrier()
            assert load(directory, fsdp, optimizer) == step
            assert len(files(directory)) == 1 + SIZE // 2
        whole = fsdp.state_dict()
        np.testing.assert_allclose(whole["first.w"], 1 - 0.1 * 1.5)
        np.testing.assert_allclose(whole["last.w"], 1 - 0.1 * 1.5)
        fsdp.free()


@even
def test_an_error_in_one_replica_is_raised_in_all(directory, monkeypatch):
    with Mesh(between=2, inside=SIZE // 2) as mesh:
        fsdp, optimizer = sharded_inside(mesh)
        save(directory, fsdp, optimizer, "old", replicas=mesh["between"])
        if mesh.coordinates == {"between": 0, "inside": 0}:
            monkeypatch.setattr(np, "savez", None)
        with pytest.raises((TypeError, RuntimeError)) as caught:
            save(directory, fsdp, optimizer, "new", replicas=mesh["between"])
        if mesh.coordinates["between"]:
            assert "checkpoint: rank 0 could not save it" in str(caught.value)
        assert load(directory, fsdp, optimizer) == "old"
        fsdp.free()


@even
def test_replicas_that_are_shards(directory):
    with Mesh(between=2, inside=SIZE // 2) as mesh:
        fsdp, optimizer = sharded_inside(mesh)
        if SIZE > 2:
            with pytest.raises(ValueError, match="replicas: the ranks of the driver have different ranks in it: 0, 1"):
                save(directory, fsdp, optimizer, replicas=mesh["inside"])
        fsdp.free()


@even
def test_replicas_of_divided_layers(directory):
    def layers(value, mesh):
        column = ColumnParallelLinear(np.full((4, 6), value), np.arange(6.0) * value, comm=mesh["tp"])
        row = RowParallelLinear(np.arange(24.0).reshape(6, 4) * value, np.full(4, value), comm=mesh["tp"])
        parameters, divided = {}, {}
        for prefix, layer in (("column.", column), ("row.", row)):
            parameters |= {prefix + name: array for name, array in layer.parameters.items()}
            divided |= {prefix + name: (axis, layer.comm) for name, axis in layer.divided.items()}
        return parameters, divided

    with Mesh(dp=SIZE // 2, tp=2) as mesh:
        parameters, divided = layers(1.0, mesh)
        optimizer = Adam(parameters)
        first = mesh.coordinates["dp"] == 0
        with (
            DistributedDataParallel(parameters, comm=mesh["dp"]) as ddp,
            DividedParameters(parameters, divided, comm=mesh.comm, writes=first) as driver,
        ):
            for name in reversed(parameters):
                ddp.ready(name, parameters[name] + mesh.coordinates["dp"])
            optimizer.step(ddp.synchronize())
            save(directory, driver, optimizer, 1)
        fresh, divided = layers(0.0, mesh)
        again = Adam(fresh)
        with DividedParameters(fresh, divided, comm=mesh.comm, writes=first) as driver:
            assert load(directory, driver, again) == 1
        for name, array in parameters.items():
            np.testing.assert_array_equal(fresh[name], array)
            np.testing.assert_array_equal(again.state["mean"][name], optimizer.state["mean"][name])


def test_modes_of_files(directory):
    """Check that new files respect the umask, and that a later checkpoint has the mode of the manifest."""

    def modes():
        WORLD.Barrier()
        found = [stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()]
        WORLD.Barrier()
        return found

    run, before = Sharded("momentum", parameters=model()), os.umask(0o077)
    saved(run, directory, "private")
    os.umask(0o022)
    assert modes() == [0o600] * (SIZE + 1)
    saved(run, directory, "still private")
    assert modes() == [0o600] * (SIZE + 1)
    if RANK == 0:
        (directory / "manifest.json").chmod(0o640)
    WORLD.Barrier()
    saved(run, directory, "for a group")
    os.umask(before)
    assert modes() == [0o640] * (SIZE + 1)
    free(run)
