import json
import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from mpi4py import MPI

import pycoll.torch

pytestmark = pytest.mark.mpi


def test_ranks_and_environment(world):
    comm = MPI.COMM_WORLD
    assert (dist.get_rank(), dist.get_world_size()) == (comm.rank, comm.size)
    assert dist.get_backend() == "pycoll"
    assert os.environ["RANK"] == str(comm.rank)
    assert os.environ["LOCAL_WORLD_SIZE"] == str(comm.size)


def test_subgroups(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([each, *range(each + 1, size, 2)]) for each in range(size)]
    for each, group in enumerate(groups):
        members = [each, *range(each + 1, size, 2)]
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members)
            dist.broadcast(tensor.fill_(rank), members[-1], group=group)
            assert tensor.item() == members[-1]
        else:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
    for group in groups:
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


def test_group_created_by_its_members_only(world):
    """Each rank creates a group of its own; torch numbers groups on each rank, so all ranks must create as many."""
    group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [1] * 3
    dist.destroy_process_group(group)
    dist.barrier()


def test_split(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    half = [each for each in range(size) if each % 2 == rank % 2]
    group = world.split_group(half, group_name=f"half {rank % 2}")
    tensor = torch.tensor([float(rank)])
    group.allreduce([tensor]).wait()
    assert tensor.item() == sum(half)
    assert (group.group_name, group.size()) == (f"half {rank % 2}", len(half))
    group.shutdown()


def test_many_groups(world):
    for _ in range(50):
        group = dist.new_group()
        dist.barrier(group=group)
        dist.destroy_process_group(group)


def test_device_mesh(world):
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    if size % 2:
        pytest.skip("needs an even number of ranks")
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    for name, length in (("dp", 2), ("tp", size // 2)):
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=mesh.get_group(name))
        assert tensor.item() == length


def test_registered_memory(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16):
        tensor = pycoll.torch.empty(3, 100, dtype=dtype)
        tensor.fill_(rank)
        dist.all_reduce(tensor)
        assert tensor.shape == (3, 100)
        assert (tensor == sum(range(size))).all()
        pycoll.torch.free(tensor)
    assert pycoll.torch.zeros((2, 2)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(TypeError, match='backend "pycoll"'):
        pycoll.torch.empty(3, group="gloo")


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_registered_memory_of_any_shape(world, shape, dtype):
    tensor, other = (pycoll.torch.zeros(shape, dtype=dtype) for _ in range(2))
    assert tensor.shape == shape and tensor.dtype == dtype and not tensor.any()
    tensor.requires_grad_(dtype.is_floating_point)
    pycoll.torch.free(tensor)
    pycoll.torch.free(other)
    for wrong in (tensor, torch.zeros(shape, dtype=dtype)):
        with pytest.raises(ValueError, match="array is not from"):
            pycoll.torch.free(wrong)


@pytest.mark.parametrize("wrong", [(-1,), (2, -3), (-2, -3), (2.0,), ("a",), ([2, "a"],)])
def test_registered_memory_of_wrong_shapes(world, wrong):
    with pytest.raises((TypeError, RuntimeError)) as expected:
        torch.empty(*wrong)
    with pytest.raises(expected.type):
        pycoll.torch.empty(*wrong)
    with pytest.raises(TypeError, match="dtype"):
        pycoll.torch.zeros(3, dtype="float32")


def test_a_part_of_registered_memory_is_not_freed(world):
    tensor = pycoll.torch.zeros(4)
    with pytest.raises(ValueError, match="array is not from"):
        pycoll.torch.free(tensor[1:])
    pycoll.torch.free(tensor)


def test_trace_names_the_group(world, directory):
    import pycoll.trace

    group = dist.new_group(group_desc="experts")
    with pycoll.trace.trace(directory):
        dist.all_reduce(torch.ones(1000), group=group)
    dist.barrier()
    spans = {event["name"] for event in json.loads((directory / "trace.json").read_text())["traceEvents"]}
    assert "experts: all_reduce" in spans
    dist.destroy_process_group(group)


def test_events_of_the_profiler(world):
    """Each collective is one event, also if a method calls another; it ends when the work is complete."""
    tensor = torch.ones(1000)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(tensor)
        work = dist.broadcast(tensor, 0, async_op=True)
        dist.barrier()
        work.wait()
        with pytest.raises(TypeError, match="not defined"):
            dist.all_reduce(tensor, dist.ReduceOp.BXOR)
    names = [event.name for event in profiler.events() if event.name.startswith("pycoll:")]
    assert sorted(names) == ["pycoll:all_reduce", "pycoll:all_reduce", "pycoll:barrier", "pycoll:broadcast"]
    dist.all_reduce(tensor)  # without the profiler
