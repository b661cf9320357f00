import json
import os
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from mpi4py import MPI

import pycoll
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


def test_events_of_the_profiler(world, tmp_path):
    """Each collective is one event, also if a method calls another; it ends when the work is complete."""
    tensor = torch.ones(1000)
    group = dist.new_group(group_desc="experts")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(tensor)
        work = dist.broadcast(tensor, 0, async_op=True, group=group)
        dist.barrier()
        work.wait()
        with pytest.raises(TypeError, match="not defined"):
            dist.all_reduce(tensor, dist.ReduceOp.BXOR)
    names = [event.name for event in profiler.events() if event.name.startswith("pycoll:")]
    begun = {f"pycoll:{name}" for name in ("all_reduce", "barrier", "broadcast")}
    assert sorted(names) == sorted([*begun, *(f"{name}:start" for name in begun), "pycoll:all_reduce"])
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (details,) = [event["args"] for event in events if event["name"] == "pycoll:broadcast:start"]
    assert details["bytes"] == 4000
    assert details["group"] == "experts"
    assert details["Input Dims"] == [[1000]]
    dist.destroy_process_group(group)
    dist.all_reduce(tensor)  # without the profiler


@pytest.mark.skipif(torch.__version__ < "2.15", reason="needs backends written in Python, as torch has since 2.15")
class TestBackend:
    """A process group of torch with a backend of pycoll, and another one for GPUs."""

    @pytest.fixture
    def group(self, world):
        group = dist.new_group(backend="cpu:pycoll,cuda:gloo")
        yield group
        dist.destroy_process_group(group)

    def test_collectives(self, group, gloo):
        assert type(group) is dist.ProcessGroup
        assert [group._get_backend(torch.device(name)).name() for name in ("cpu", "cuda")] == ["pycoll", "gloo"]
        rank, size = dist.get_rank(), dist.get_world_size()
        given = torch.arange(4.0 * size) + 100 * rank
        found = []
        for each in (group, gloo):
            reduced, gathered, scattered = given.clone(), torch.empty(4 * size * size), torch.empty(4)
            exchanged, listed = torch.empty(4 * size), [torch.empty(4) for _ in range(size)]
            dist.all_reduce(reduced, group=each)
            dist.all_gather_into_tensor(gathered, given, group=each)
            dist.reduce_scatter_tensor(scattered, given, group=each)
            dist.all_to_all_single(exchanged, given, group=each)
            dist.all_gather(listed, given[:4].contiguous(), group=each)
            sent = given.clone()
            dist.broadcast(sent[:4], 0, group=each)
            objects = [None] * size
            dist.all_gather_object(objects, {"rank": rank}, group=each)
            with dist._coalescing_manager(group=each, async_ops=True) as combined:
                parts = [torch.ones(3), torch.ones(2)]
                for part in parts:
                    dist.all_reduce(part, group=each)
            combined.wait()
            found.append([reduced, gathered, scattered, exchanged, *listed, sent, *parts])
            assert objects == [{"rank": other} for other in range(size)]
        for ours, expected in zip(*found, strict=True):
            assert torch.equal(ours, expected)

    def test_messages_works_and_errors(self, group):
        rank, size = dist.get_rank(), dist.get_world_size()
        if size > 1 and rank < 2:
            tensor = torch.full((2,), float(rank))
            (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank, group=group)
            assert tensor.tolist() == [0, 0]
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        (result,) = work.get_future().wait()
        assert result.tolist() == [size] * 3
        with pytest.raises(ValueError, match="the list has"):
            dist.all_gather([torch.empty(1)] * (size + 1), torch.ones(1), group=group)
        tensor = pycoll.torch.zeros(3, group=group)
        dist.all_reduce(tensor.add_(1), group=group)
        assert tensor.tolist() == [size] * 3
        pycoll.torch.free(tensor, group=group)

    def test_hooks_and_flight_recorder(self, group):
        from torch._C import _distributed_c10d as c10d

        names = []
        group.register_pre_hook(1, lambda call: names.append(call.name.name))
        dist.all_reduce(torch.ones(3), group=group)
        dist.broadcast(torch.ones(3), 0, group=group)
        assert names == ["ALLREDUCE", "BROADCAST"]
        recorded = json.loads(c10d._dump_fr_trace_json(True, False, "pycoll"))["entries"]
        assert {"pycoll:all_reduce", "pycoll:broadcast"} <= {entry["profiling_name"] for entry in recorded}

    def test_a_training_step(self, group):
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(torch.nn.Linear(3, 1), process_group=group)
        model(torch.full((1, 3), float(dist.get_rank()))).sum().backward()
        mean = (dist.get_world_size() - 1) / 2
        assert model.module.weight.grad.tolist() == [[mean] * 3]

    @pytest.mark.parametrize("backend", ["pycoll", "cpu:pycoll,cuda:gloo"])
    def test_parts_of_a_group(self, world, backend):
        parent = dist.new_group(backend=backend)
        rank, size = dist.get_rank(), dist.get_world_size()
        halves = [part for part in (list(range(0, size, 2)), list(range(1, size, 2))) if part]
        part = dist.split_group(parent, halves)
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == sum(halves[rank % 2])
        for group in (part, parent):
            dist.destroy_process_group(group)

    def test_details_are_compared_for_debugging(self, world):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        try:
            group = dist.new_group(backend="pycoll")
        finally:
            dist.set_debug_level(dist.DebugLevel.OFF)
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [dist.get_world_size()] * 3
        if dist.get_world_size() > 1:
            with pytest.raises(RuntimeError, match="mismatch"):
                dist.all_reduce(torch.ones(3 + dist.get_rank()), group=group)
        pycoll.torch.free(pycoll.torch.zeros(3, group=group), group=group)
        dist.destroy_process_group(group)

    @pytest.mark.parametrize("backend", ["pycoll", "cpu:pycoll,cuda:gloo"])
    def test_a_monitored_barrier_names_the_late_ranks(self, world, backend):
        group = dist.new_group(backend=backend)
        dist.monitored_barrier(group)
        rank, size = dist.get_rank(), dist.get_world_size()
        if size > 1 and rank < size - 1:
            with pytest.raises(pycoll.CollectiveTimeout, match=f"rank {size - 1}" if rank == 0 else "rank 0"):
                dist.monitored_barrier(group, timedelta(seconds=0.5))
        dist.barrier()


@pytest.mark.skipif(torch.__version__ >= "2.15", reason="since 2.15, torch has backends written in Python")
def test_a_backend_among_others_takes_all_tensors(world):
    group = dist.new_group(backend="cpu:gloo,cuda:pycoll")
    assert isinstance(group, pycoll.torch.ProcessGroup)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [dist.get_world_size()] * 3
    dist.destroy_process_group(group)
