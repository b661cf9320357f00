"""Mesh: coordinates, the communicators of axes, drivers on them, errors."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.parallel import (
    SGD,
    DistributedDataParallel,
    FullyShardedDataParallel,
    Mesh,
    ParameterServer,
    average_gradients,
)
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def shapes():
    """Return the meshes of up to three axes for this number of ranks."""
    divisors = [each for each in range(1, SIZE + 1) if SIZE % each == 0]
    return [
        dict(zip("abc", sizes, strict=False))
        for axes in (1, 2, 3)
        for sizes in itertools.product(divisors, repeat=axes)
        if math.prod(sizes) == SIZE
    ]


@pytest.mark.parametrize("axes", shapes(), ids=str)
def test_ranks_on_axes(axes):
    with Mesh(**axes) as mesh:
        assert mesh.axes == axes
        everywhere = WORLD.allgather(mesh.coordinates)
        assert sorted(tuple(each.values()) for each in everywhere) == list(
            itertools.product(*map(range, axes.values()))
        )
        for name, size in axes.items():
            comm = mesh[name]
            assert (comm.size, comm.rank) == (size, mesh.coordinates[name])
            total = pycoll.allreduce(np.array([1.0, mesh.coordinates[name], RANK]), comm=comm)
            alike = [
                rank
                for rank, each in enumerate(everywhere)
                if all(each[other] == mesh.coordinates[other] for other in axes if other != name)
            ]
            assert total.tolist() == [size, sum(range(size)), sum(alike)]


def test_flattened_axes():
    axes = {"dp": 1, "pp": SIZE, "tp": 1}
    with Mesh(WORLD, **axes) as mesh:
        whole = mesh["tp", "pp", "dp"]
        assert whole is mesh["dp", "pp", "tp"]
        assert (whole.size, whole.rank) == (SIZE, mesh.coordinates["pp"])
        assert mesh["dp", "tp"].size == 1


def test_the_last_axis_lies_inside_hosts(monkeypatch):
    """Ranks are dealt to two hosts like cards; neighbors on the last axis share a host."""
    if SIZE % 4:
        pytest.skip("needs 4 or 8 ranks")
    monkeypatch.setattr(MPI, "Get_processor_name", lambda: f"host{RANK % 2}")
    mesh = Mesh(a=SIZE // 2, b=2)
    assert set(mesh["b"].allgather(RANK % 2)) == {RANK % 2}
    mesh.free()


def gradient(rank):
    """Return whole numbers whose average over up to 8 ranks is whole."""
    return 840.0 * np.random.default_rng(rank).integers(-4, 5, 13)


def test_ddp_averages_over_an_axis():
    if SIZE % 2:
        pytest.skip("needs an even number of ranks")
    with Mesh(tp=SIZE // 2, dp=2) as mesh:
        members = mesh["dp"].allgather(RANK)
        with DistributedDataParallel({"w": np.zeros(13)}, comm=mesh["dp"]) as ddp:
            ddp.ready("w", gradient(RANK))
            assert ddp.synchronize()["w"].tolist() == (sum(map(gradient, members)) / 2).tolist()


def test_a_parameter_server_on_an_axis():
    if SIZE % 2:
        pytest.skip("needs an even number of ranks")
    with Mesh(tp=SIZE // 2, dp=2) as mesh:
        members = mesh["dp"].allgather(RANK)
        weights = {"w": np.zeros(13)}
        optimizer = partial(SGD, lr=1.0)
        with ParameterServer(weights, optimizer=optimizer, comm=mesh["dp"], colocated=True) as ps:
            ps.step({"w": gradient(RANK)})
            ps.finish()
        assert weights["w"].tolist() == (-sum(map(gradient, members)) / 2).tolist()


def test_hybrid_sharding():
    """FSDP shards inside one axis, and the shards of the gradients are averaged over the other one."""
    if SIZE % 2:
        pytest.skip("needs an even number of ranks")
    mesh = Mesh(replicas=2, shards=SIZE // 2)
    with mesh, FullyShardedDataParallel({"w": np.zeros(13)}, comm=mesh["shards"]) as fsdp:
        with fsdp.forward(0):
            pass
        with fsdp.backward(0):
            fsdp.ready("w", gradient(RANK))
        averages = average_gradients(fsdp.synchronize(), comm=mesh["replicas"])
        for name, shard in fsdp.shards.items():
            shard -= averages[name]
        expected = -sum(map(gradient, range(SIZE))) / SIZE
        assert fsdp.state_dict()["w"].tolist() == expected.tolist()


def test_wrong_meshes():
    with pytest.raises(
        ValueError, match=rf"dp={SIZE + 1} \* tp=1 is {SIZE + 1}, but the communicator has {SIZE} ranks"
    ):
        Mesh(dp=SIZE + 1, tp=1)
    with pytest.raises(ValueError, match=f"dp={SIZE} would fit"):
        Mesh(dp=SIZE + 1, tp=1)
    with pytest.raises(ValueError, match=f"start {(SIZE + 1) ** 2} ranks"):
        Mesh(dp=SIZE + 1, tp=SIZE + 1)
    with pytest.raises(ValueError, match="dp=0 is not a positive number"):
        Mesh(dp=0)
    with pytest.raises(TypeError, match=r"dp='2' is not an integer"):
        Mesh(dp="2")
    with pytest.raises(TypeError, match="at least one axis"):
        Mesh()
    with Mesh(dp=SIZE) as mesh:
        for names in ("tp", ("dp", "dp"), ()):
            with pytest.raises(KeyError, match="the axes of this mesh are dp"):
                mesh[names]
