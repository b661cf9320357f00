import signal
import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

import pycoll
from pycoll.runtime.progress import tasks

pytestmark = pytest.mark.mpi


def total():
    return sum(range(dist.get_world_size()))


def contribution(count=4):
    return torch.full((count,), float(dist.get_rank()))


def test_some_ranks_wait_at_once(world):
    """Whether a rank passes async_op is its own affair."""
    rank = dist.get_rank()
    for step in range(6):
        tensor = contribution(1000 * step + 1)
        work = dist.all_reduce(tensor, async_op=(rank + step) % 2 == 0)
        assert work is None or work.wait()
        assert (tensor == total()).all()


def test_works_complete_while_nobody_waits(world):
    tensors = [contribution(count) for count in (1, 1000, 300_000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    while not all(work.is_completed() for work in works):
        time.sleep(0.001)  # no call of pycoll
    assert all((tensor == total()).all() for tensor in tensors)
    assert all(work.is_success() and work.exception() is None for work in works)


def test_works_are_awaited_in_any_order(world):
    works = [(tensor, dist.all_reduce(tensor, async_op=True)) for tensor in map(contribution, (5, 70_000, 1, 900))]
    for tensor, work in reversed(works):
        assert work.wait()
        assert work.wait()
        assert (tensor == total()).all()


def test_two_threads_wait_for_one_work(world):
    tensor = contribution(500_000)
    work = dist.all_reduce(tensor, async_op=True)
    results = []
    threads = [threading.Thread(target=lambda: results.append(work.wait())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]
    assert (tensor == total()).all()


def test_future_before_and_after_completion(world):
    tensor = contribution()
    work = dist.all_reduce(tensor, async_op=True)
    early = work.get_future().then(lambda future: future.value()[0] * 2)
    work.wait()
    assert early.wait()[0] == 2 * total()
    late = work.get_future()
    assert late.wait()[0] is not None
    assert late.done()


def test_the_future_of_an_all_gather_has_one_list(world):
    """As that of gloo."""
    size = dist.get_world_size()
    outputs = [torch.zeros(2) for _ in range(size)]
    work = dist.all_gather(outputs, contribution(2), async_op=True)
    assert [tensor.tolist() for tensor in work.get_future().wait()] == [[float(rank)] * 2 for rank in range(size)]
    assert all(map(torch.equal, work.result(), outputs))


def test_callback_waits_for_another_work(world):
    first, second = contribution(), contribution(100_000)

    def again(future):
        dist.all_reduce(second, async_op=True).get_future().wait()
        return future.value()

    dist.all_reduce(first, async_op=True).get_future().then(again).wait()
    assert (second == total()).all()


def test_buffers_may_be_forgotten(world):
    size = dist.get_world_size()
    output = torch.empty(size * 50_000)
    works = [dist.all_gather_single(output, contribution(50_000), async_op=True)]
    works += [dist.all_reduce(contribution(1000), async_op=True) for _ in range(20)]
    for work in works:
        work.wait()
    assert torch.equal(output, torch.arange(float(size)).repeat_interleave(50_000))


def test_messages(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        pytest.skip("a rank does not send to itself")
    received = torch.empty(3, dtype=torch.bfloat16)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.full((3,), rank, dtype=torch.bfloat16), following),
            dist.P2POp(dist.irecv, received, previous),
        ]
    )
    for work in works:
        work.wait()
    assert received.tolist() == [previous] * 3
    if rank == 0:
        sources = []
        for _ in range(size - 1):
            tensor = torch.empty(2, 2).t()
            sources.append(dist.recv(tensor, tag=7))
            assert tensor.tolist() == [[sources[-1], 1], [2, 3]]
        assert sorted(sources) == list(range(1, size))
    else:
        dist.send(torch.tensor([[rank, 1.0], [2, 3]]), 0, tag=7)
    objects = [None]
    if rank == 0:
        dist.send_object_list([{"from": rank}], 1)
    elif rank == 1:
        dist.recv_object_list(objects, 0)
        assert objects == [{"from": 0}]


def test_timeout_names_the_rank_waited_for(world):
    size, rank = dist.get_world_size(), dist.get_rank()
    if size == 1:
        pytest.skip("nobody to wait for")
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if rank > 0:
        with pytest.raises(
            pycoll.CollectiveTimeout,
            match=r"timeout of 0\.5 s: in round \d+ it is waiting for rank",
        ):
            dist.all_reduce(contribution(), group=group)
        with pytest.raises(pycoll.CollectiveTimeout):
            dist.all_reduce(contribution(), group=group)  # the communicator is unusable
    dist.barrier()
    if rank == 1:
        with pytest.raises(pycoll.CollectiveTimeout, match=r"recv from rank 0 with tag 3 .* of 0\.2 s"):
            other = dist.new_group([0, 1], timeout=timedelta(seconds=0.2))
            dist.recv(torch.empty(1), 0, group=other, tag=3)
    else:
        dist.new_group([0, 1], timeout=timedelta(seconds=0.2))
    dist.barrier()


def test_timeout_of_a_sparse_all_reduce(world):
    if dist.get_world_size() == 1:
        pytest.skip("nobody to wait for")
    group = dist.new_group(timeout=timedelta(seconds=0.3))
    if dist.get_rank() == 1:
        with pytest.raises(pycoll.CollectiveTimeout, match=r"timeout of 0\.3 s"):
            dist.all_reduce(torch.eye(3).to_sparse(), group=group)
    dist.barrier()


def test_timeout_in_a_backward_pass(world):
    """DistributedDataParallel waits for futures in C++."""
    if dist.get_world_size() == 1:
        pytest.skip("nobody to wait for")
    model = DistributedDataParallel(torch.nn.Linear(2, 1), process_group=dist.new_group(timeout=timedelta(seconds=2)))
    loss = model(torch.ones(1, 2)).sum()
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=r"CollectiveTimeout: .* within its timeout of 2 s"):
            loss.backward()
    dist.barrier()


@pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="needs THREAD_MULTIPLE")
def test_messages_while_another_thread_is_in_a_collective(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        pytest.skip("a rank does not send to itself")
    tensor, received = torch.ones(3), torch.zeros(2)
    thread = threading.Thread(target=lambda: dist.all_reduce(tensor))
    if rank == 0:
        thread.start()
        time.sleep(0.2)
        dist.send(torch.tensor([4.0, 5.0]), 1)
        dist.recv(received, 1)
    elif rank == 1:
        dist.recv(received, 0)
        dist.send(received, 0)
    if rank > 0:
        thread.start()
    thread.join()
    assert (tensor == size).all()
    assert rank > 1 or received.tolist() == [4, 5]


def test_timeout_of_a_work_that_nobody_waits_for(world):
    if dist.get_world_size() == 1:
        pytest.skip("nobody to wait for")
    group = dist.new_group(timeout=timedelta(seconds=0.3))
    if dist.get_rank() == 1:
        work = dist.barrier(group=group, async_op=True)
        future = work.get_future()
        with pytest.raises(RuntimeError, match=r"did not finish within its timeout of 0\.3 s"):
            future.wait()
        assert isinstance(work.exception(), pycoll.CollectiveTimeout)
        assert not work.is_success()
    dist.barrier()


@pytest.mark.parametrize("count", [4, 100])
def test_callbacks_of_all_ranks_run_in_the_same_order(world, count):
    """Each callback starts a collective; short and long works are complete in any order."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def again(number):
        def call(future):
            tensor = torch.full((3,), float(number))
            dist.all_reduce(tensor, async_op=True).get_future().wait()
            return tensor

        return call

    for step in range(20 if count == 4 else 1):
        if rank == step % size:
            time.sleep(0.01)
        works = [dist.all_reduce(torch.ones(30_000 if each % 2 else 3), async_op=True) for each in range(count)]
        futures = [work.get_future().then(again(number)) for number, work in enumerate(works)]
        assert [future.wait()[0].item() for future in futures] == [size * number for number in range(count)]


def test_destroying_a_group_leaves_the_works_of_others_alone(world):
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        pytest.skip("a rank does not send to itself")
    group, received = dist.new_group(), torch.zeros(1)
    work = dist.irecv(received, 1, tag=5) if rank == 0 else None
    dist.destroy_process_group(group)
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(1), 0, tag=5)
    assert work is None or (work.wait() and received.item() == 1)


def test_interrupted_wait_sets_the_future(world):
    rank = dist.get_rank()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        if rank == dist.get_world_size() - 1:
            time.sleep(0.3)
        work = dist.all_reduce(contribution(), async_op=True)
        future = work.get_future()
        if rank == 0 and dist.get_world_size() > 1:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                work.wait()
            with pytest.raises(RuntimeError, match="interrupted by KeyboardInterrupt"):
                future.wait()
        else:
            work.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    dist.barrier()
    while tasks:  # what was interrupted goes on, but nobody waits for it
        time.sleep(0.001)
