"""DistributedDataParallel: hooks, and communication before `synchronize`."""

import contextlib
import math
import random
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.parallel import SGD, Cast, DistributedDataParallel, TopK, exact_average
from pycoll.runtime.open_core import why_unusable
from tests.mpi.native import RANK, SIZE, WORLD

from .test_ddp import (
    Counting,
    alone,
    assert_near,
    assert_replicas,
    backward,
    batch,
    exact,
    mean,
    network,
    sizes,
    vectors,
)

pytestmark = pytest.mark.mpi
EVERYONE = range(SIZE)
SHAPES = {"a": (7,), "b": (5, 3), "c": (9,)}


def gradients(step, rank=RANK):
    numbers = np.random.default_rng([step, rank])
    return {name: numbers.normal(size=shape) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("dtype, eps", [("float16", 2.0**-10), ("bfloat16", 2.0**-7), (np.float32, 2.0**-23)])
@pytest.mark.parametrize("limit", [1, 1 << 20], ids=["one each", "one for all"])
def test_cast(dtype, eps, limit):
    """Averages are representable in the dtype, and accurate to (p + 1) half ulps of the sum of magnitudes."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    with DistributedDataParallel(gradients(0), hook=Cast(np.dtype(dtype).name), **sizes(limit)) as ddp:
        for step in range(5):
            averages = ddp.average_gradients(gradients(step))
            assert_replicas(averages)
            for name, average in averages.items():
                np.testing.assert_array_equal(average, average.astype(dtype).astype(float))
                everyones = [gradients(step, rank)[name] / SIZE for rank in EVERYONE]
                bound = (SIZE + 1) / 2 * eps * sum(map(np.abs, everyones)) + 2.0**-24 * SIZE
                assert (np.abs(average - sum(everyones)) <= bound).all()


def test_exact_average_does_not_depend_on_the_order_of_ranks():
    results = []
    for rank in (RANK, SIZE - 1 - RANK):
        with DistributedDataParallel(gradients(0), hook=exact_average, **sizes(100)) as ddp:
            results.append(ddp.average_gradients(gradients(3, rank)))
            assert_replicas(results[-1])
    everyones = [gradients(3, rank) for rank in EVERYONE]
    for name in SHAPES:
        expected = [math.fsum(each) / SIZE for each in np.transpose([one[name].ravel() for one in everyones])]
        assert results[0][name].ravel().tolist() == results[1][name].ravel().tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_exact_average_requires_single_or_double_precision(dtype):
    start = {"a": np.zeros(3, np.complex64), "b": np.zeros(3, dtype)}
    message = rf"^parameters\['b'\] has dtype {np.dtype(dtype)}, but exact_average supports only .* double precision"
    with pytest.raises(TypeError, match=message):
        DistributedDataParallel(start, hook=exact_average)


def test_cast_overflows_no_sooner_than_the_average():
    with DistributedDataParallel(vectors(), hook=Cast("float16")) as ddp:
        averages = ddp.average_gradients({name: np.full(4, 40_000.0) for name in "abcd"})
        np.testing.assert_allclose(averages["a"], 40_000, rtol=SIZE * 2.0**-10)


def test_cast_does_not_drop_imaginary_parts():
    start = {"a": np.zeros(3), "b": np.zeros(3, np.complex128)}
    with pytest.raises(TypeError, match=r"^parameters\['b'\] has dtype complex128, .* in float16"):
        DistributedDataParallel(start, hook=Cast("float16"))
    hook = Cast("float16")
    del start["a"]
    with (
        DistributedDataParallel(start, hook=lambda bucket: hook(bucket)) as ddp,
        pytest.raises(TypeError, match=r"^bucket 0 has dtype complex128"),
    ):
        ddp.ready("b", start["b"])
    with DistributedDataParallel(start, hook=Cast("complex64")) as ddp:
        averages = ddp.average_gradients({"b": np.full(3, RANK + 2j)})
        np.testing.assert_allclose(averages["b"], (SIZE - 1) / 2 + 2j, rtol=1e-6)


@pytest.mark.parametrize("hook, width", [(None, 4), (Cast("float16"), 2), (Cast("float64"), 8)])
def test_bytes_on_the_wire(hook, width):
    parameters = {"a": np.zeros((21, 10), "f4"), "b": np.zeros(630, "f4")}
    with pycoll.traffic() as sent, DistributedDataParallel(parameters, **{} if hook is None else {"hook": hook}) as ddp:
        for _ in range(3):
            before = sent.nbytes
            ddp.average_gradients({"a": np.ones((21, 10)), "b": np.ones(630)})
            assert (sent.nbytes - before) * SIZE == 2 * (SIZE - 1) * 840 * width


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_registered_wires_give_the_same_bits_as_messages(monkeypatch, dtype):
    gradient = np.random.default_rng(RANK).normal(size=140_001).astype("f4")
    averages, sent = {}, {}
    for registered in (True, False):
        monkeypatch.setattr(settings, "REGISTERED", registered)
        with DistributedDataParallel({"a": np.zeros(140_001, "f4")}, hook=Cast(dtype)) as ddp:
            with pycoll.traffic() as counted:
                averages[registered] = ddp.average_gradients({"a": gradient})["a"].copy()
            sent[registered] = counted.nbytes
    np.testing.assert_array_equal(averages[True], averages[False])
    one_host = len(set(WORLD.allgather(MPI.Get_processor_name()))) == 1
    assert sent[True] < sent[False] / 10 or not one_host or why_unusable()


@pytest.mark.parametrize("hook", [Cast("float32"), TopK(1)])
def test_one_hook_for_several_drivers(hook):
    lengths = [4, 4, 5]
    drivers = [DistributedDataParallel({"a": np.zeros(length)}, hook=hook) for length in lengths]
    for step, (ddp, length) in enumerate(zip(drivers, lengths)):
        ddp.ready("a", exact("a", step, shape=length))
    for step, (ddp, length) in enumerate(zip(drivers, lengths)):
        np.testing.assert_array_equal(ddp.synchronize()["a"], mean("a", step, shape=length))
        ddp.free()


@pytest.mark.parametrize("ratio", [0.01, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("groups", ["c b a", "cba"], ids=["one each", "one for all"])
def test_top_k_remembers_what_it_did_not_send(groups, ratio):
    """TopK agrees with a model of the memories of all ranks."""
    hook, kept, groups = TopK(ratio), {}, groups.split()

    def keeping(bucket):
        kept[bucket.index] = bucket.state
        return hook(bucket)

    lengths = [sum(int(np.prod(SHAPES[name])) for name in group) for group in groups]
    memories = [np.zeros((SIZE, length)) for length in lengths]
    with DistributedDataParallel(gradients(0), hook=keeping, **sizes(1 if len(groups) > 1 else 1 << 20)) as ddp:
        for step in range(10):
            averages = ddp.average_gradients(gradients(step))
            assert_replicas(averages)
            for index, (group, memory) in enumerate(zip(groups, memories)):
                sent = np.zeros_like(memory)
                for rank in EVERYONE:
                    mine = gradients(step, rank)
                    memory[rank] += np.concatenate([mine[name].reshape(-1) for name in group])
                    largest = np.argsort(-np.abs(memory[rank]))[: max(1, int(ratio * lengths[index]))]
                    sent[rank, largest] = memory[rank, largest]
                memory -= sent
                ours = np.concatenate([averages[name].reshape(-1) for name in group])
                np.testing.assert_allclose(ours, sent.mean(axis=0), rtol=0, atol=1e-13)
                np.testing.assert_allclose(kept[index]["error"], memory[RANK], rtol=0, atol=1e-13)
                assert (np.count_nonzero(memory, axis=1) == lengths[index] - len(largest)).all()


def test_top_k_loses_no_gradients_of_parameters_that_are_not_used_later():
    parameters = {"a": np.zeros(3), "b": np.zeros(3)}
    totals = {name: np.zeros(3) for name in parameters}
    with DistributedDataParallel(parameters, hook=TopK(0.3), find_unused=True) as ddp:
        for step in range(8):
            if step == 0:
                ddp.ready("b", np.full(3, 1.0 + RANK))
            if step < 2:
                ddp.ready("a", np.full(3, 10.0))
            averages = ddp.synchronize()
            assert [*averages] == [*WORLD.bcast(averages)]
            for name, average in averages.items():
                totals[name] += average
        assert not averages
        np.testing.assert_array_equal(totals["a"], np.full(3, 20.0))
        np.testing.assert_allclose(totals["b"], np.full(3, (SIZE + 1) / 2))


@pytest.mark.parametrize("ratio", [0, -0.1, 1.5, float("nan")])
def test_wrong_ratios(ratio):
    with pytest.raises(ValueError, match=f"^ratio={ratio} is not in"):
        TopK(ratio)


def one_request(bucket):
    wire = (bucket.vector / bucket.comm.size).astype(np.float32)
    yield pycoll.iallreduce(MPI.IN_PLACE, wire, comm=bucket.comm)
    bucket.vector[:] = wire


def several_requests(bucket):
    half = bucket.vector.size // 2
    parts = bucket.vector[:half], bucket.vector[half:]
    yield [pycoll.iallreduce(MPI.IN_PLACE, part, op=pycoll.AVG, comm=bucket.comm) for part in parts]


def two_stages(bucket):
    total = np.empty_like(bucket.vector)
    yield pycoll.ireduce(bucket.vector, total, comm=bucket.comm)
    if bucket.comm.rank == 0:
        np.divide(total, bucket.comm.size, out=bucket.vector)
    yield [pycoll.ibcast(bucket.vector, comm=bucket.comm), pycoll.ibarrier(comm=bucket.comm)]


def three_stages(bucket):
    for _ in range(2):
        yield bucket.allreduce(bucket.vector.copy(), MPI.SUM)
    yield bucket.allreduce(bucket.vector, pycoll.AVG)


def of_mpi(bucket):
    ones = np.ones(1)
    ours = pycoll.iallreduce(MPI.IN_PLACE, ones, comm=bucket.comm)
    yield [bucket.comm.Iallreduce(MPI.IN_PLACE, bucket.vector), ours]
    yield []
    bucket.vector /= ones[0]


HOOKS = [one_request, several_requests, two_stages, three_stages, of_mpi]


@pytest.mark.parametrize("hook", [*HOOKS, TopK(1)])
def test_hooks_of_the_users(hook):
    """User-defined hooks work even if gradients are announced in a different order on each rank."""
    orders = random.Random(RANK)
    with DistributedDataParallel(vectors(), hook=hook, find_unused=True, **sizes(64)) as ddp:
        for step in range(5):
            for name in orders.sample("abcd", 4):
                ddp.ready(name, exact(name, step))
            averages = ddp.synchronize()
            for name in "abcd":
                np.testing.assert_array_equal(averages[name], mean(name, step))


threads = pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="needs MPI_THREAD_MULTIPLE")


@pytest.mark.parametrize("beside", [contextlib.nullcontext, pytest.param(pycoll.progress_thread, marks=threads)])
def test_communication_begins_before_all_gradients_are_there(beside):
    """An average is complete before the next gradient is announced."""
    hook = Counting()
    with beside() as thread, DistributedDataParallel(vectors(), hook=hook, **sizes(1)) as ddp:
        for step in range(3):
            for place, name in enumerate("dcba"):
                ddp.ready(name, exact(name, step))
                assert hook.started == [*range(4)] * step + [*range(place + 1)]
                while not ((ddp.gradients[name] == mean(name, step)).all() if thread else ddp.progress()):
                    time.sleep(1e-4)
                np.testing.assert_array_equal(ddp.gradients[name], mean(name, step))
            ddp.synchronize()


def test_announcements_alone_let_communication_go_on():
    many = [f"p{n}" for n in range(40 + 10 * SIZE)]
    parameters = {name: np.zeros(1) for name in many} | {"last": np.zeros(50)}
    with DistributedDataParallel(parameters, first_bucket_bytes=400) as ddp:
        ddp.ready("last", exact("last", shape=50))
        for name in many[1:]:
            WORLD.Barrier()
            ddp.ready(name, np.ones(1))
        np.testing.assert_array_equal(ddp.gradients["last"], mean("last", shape=50))
        ddp.ready(many[0], np.ones(1))
        assert all((average == 1).all() for name, average in ddp.synchronize().items() if name != "last")


@threads
@pytest.mark.parametrize("hook", [None, two_stages])
def test_training_beside_the_progress_thread(hook):
    parameters = network(RANK)
    options = sizes(200) | ({} if hook is None else {"hook": hook})
    with pycoll.progress_thread(), DistributedDataParallel(parameters, **options) as ddp:
        rule = SGD(parameters, lr=0.2, momentum=0.9)
        for step, expected in enumerate(alone([EVERYONE] * 10)):
            for name, gradient in backward(parameters, *batch(step, RANK)):
                ddp.ready(name, gradient)
            rule.step(ddp.synchronize())
            assert_near(parameters, expected)
        assert_replicas(parameters)


@pytest.mark.parametrize("hook", ["float16", Cast, TopK, None, 3])
def test_what_is_no_hook(hook):
    with pytest.raises(TypeError, match="hook must be a generator function of a Bucket, for example Cast"):
        DistributedDataParallel({"a": np.zeros(3)}, hook=hook)
