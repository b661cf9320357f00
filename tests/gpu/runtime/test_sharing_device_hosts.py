"""GPU memory of other ranks on several hosts, which are simulated: kernels inside a host, messages between hosts."""

import numpy as np
import pytest

import pycoll
from pycoll.base import settings
from pycoll.runtime.attach import attach
from tests.gpu import standin
from tests.gpu.api.test_collectives import is_real
from tests.mpi.api import test_registered
from tests.mpi.api.test_registered_hosts import ALONE, EVEN, HOSTS, TWO_LEVEL, placed
from tests.mpi.native import RANK, SIZE
from tests.quick import repeats

from .test_sharing_device import Call, memory, on_host, unshareable, warned

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE < 3, reason="no two ranks are on one of two hosts"),
    pytest.mark.parametrize("way", ["direct", "staged"], indirect=True),
]
COUNT, PAIRS = test_registered.COUNT, test_registered.PAIRS
FORMS = ("nonblocking", "persistent")
CALLS = [(*pair, "blocking") for pair in PAIRS if not repeats(*pair)]
CALLS += [(primitive, "two_level", form) for primitive in TWO_LEVEL for form in FORMS]


@pytest.fixture
def hosts(xp, way, access):
    """Yield a communicator of ranks on two hosts; inside a host, ranks access the GPU memory of each other."""
    comm = placed(HOSTS)
    assert attach(comm).facts.cuda_ipc
    yield comm
    comm.Free()
    if not is_real(xp):
        assert not standin.ipc.opened


def traffic(call, where, form="blocking"):
    """Run a call twice; return the traffic of the second run, and the result."""
    for _ in range(2):
        with pycoll.traffic() as sent:
            result = call.run(where, form)
    return sent, on_host(result)


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive, algorithm, form", CALLS)
def test_every_algorithm(xp, hosts, way, primitive, algorithm, form, in_place):
    """The results are the same as with messages, bit for bit; with two levels, fewer bytes are sent."""
    call = Call(hosts, primitive, algorithm, in_place=in_place)
    host_memory = [np.zeros(SIZE * COUNT + 64, "f4") for _ in range(2)]
    before, expected = traffic(test_registered.Call(hosts, primitive, algorithm, in_place=in_place), host_memory, form)
    now, found = traffic(call, memory(xp), form)
    np.testing.assert_array_equal(found, expected)
    assert now.nbytes <= before.nbytes + 4 * COUNT // 8  # and the positions of buffers
    assert now.staged == 0 or way == "staged"
    if algorithm == "two_level" and EVEN and primitive not in ("bcast", "scatter", "gather", "reduce"):
        assert now.nbytes < before.nbytes
        assert way == "direct" or now.staged < 2 * before.nbytes


@pytest.mark.skipif(not EVEN, reason="hosts have different numbers of ranks")
@pytest.mark.parametrize("primitive, blocks", [("allgather", 1), ("allreduce", 2 / SIZE), ("reduce_scatter", 1)])
def test_data_is_sent_only_between_hosts(xp, hosts, primitive, blocks):
    count = COUNT // (64 * SIZE) * 64 * SIZE  # so that all parts of the vector are equal
    sent, _ = traffic(Call(hosts, primitive, "two_level", count=count), memory(xp))
    assert 0 <= sent.nbytes - 4 * count * blocks < 2000  # the rest are the positions of buffers


@pytest.mark.parametrize("primitive", TWO_LEVEL)
def test_segments(xp, hosts, primitive):
    """Messages between hosts are cut, and several segments are in flight."""
    settings.configure(device_segment=1 << 12)
    Call(hosts, primitive, "two_level").check(memory(xp))
    settings.configure(device_segment=None)


def test_one_host_cannot_export_its_memory(xp, hosts):
    """The ranks of that host use messages, and the others do not."""
    bad = RANK == 0 and not ALONE
    where = unshareable(xp, "managed") if bad else memory(xp)
    call = Call(hosts, "allreduce", "two_level")
    if bad:
        with warned("PYCOLL_CUDA_IPC is 1: .*is managed"):
            call.check(where)
    else:
        call.check(where)
    sent, _ = traffic(call, where)
    if EVEN:
        assert (sent.nbytes < 4 * COUNT) == (HOSTS[RANK] != HOSTS[0])


def test_host_memory_on_one_rank(xp, hosts):
    settings.configure(device_segment=settings.longest(True))  # as in host memory
    where, kind = memory(xp), Call
    if RANK == SIZE - 1:
        where, kind = [np.zeros(SIZE * COUNT + 64, "f4") for _ in range(2)], test_registered.Call
    for turn in range(3):
        call = kind(hosts, "allreduce", "two_level", turn)
        np.testing.assert_array_equal(on_host(call.run(where)), Call(hosts, "allreduce", "two_level", turn).reference())
    settings.configure(device_segment=None)


def test_means_and_other_types(xp, hosts):
    for op, dtype in [("avg", "f4"), ("prod", "c16"), ("max", "i8")]:
        host = np.random.default_rng(RANK).integers(0, 3, 4000).astype(dtype)
        expected = pycoll.allreduce(host, op=op, algorithm="two_level", comm=hosts)
        found = pycoll.allreduce(xp.asarray(host), op=op, algorithm="two_level", comm=hosts)
        np.testing.assert_array_equal(found.get(), expected)


def test_several_in_flight(xp, hosts):
    calls = [Call(hosts, primitive, "two_level", seed) for seed, primitive in enumerate(TWO_LEVEL)]
    wheres = [memory(xp) for _ in calls]
    requests = [
        getattr(pycoll, f"i{call.primitive}")(*call.place(where), **call.given) for call, where in zip(calls, wheres)
    ]
    Call(hosts, "allgather", "two_level").check(memory(xp))
    for call, request in reversed(list(zip(calls, requests))):
        np.testing.assert_array_equal(on_host(request.wait()), call.reference())


def test_explain(xp, hosts):
    given = {"comm": hosts, "nbytes": 1 << 20}
    if EVEN:
        assert "accessed by kernels, if" in pycoll.explain("allreduce", algorithm="two_level", **given).gpu
    assert "needs messages inside this host" in pycoll.explain("reduce", algorithm="tree", **given).gpu


def test_gpu_memory_is_used_beside_registered_memory(xp, hosts):
    registered = [pycoll.zeros(1 << 15, "f4", comm=hosts) for _ in range(2)]
    for turn in range(3):
        registered[0][:] = RANK + turn
        pycoll.allreduce(*registered, algorithm="two_level", comm=hosts)
        assert (registered[1] == sum(range(SIZE)) + turn * SIZE).all()
        Call(hosts, "allreduce", "two_level", turn).check(memory(xp))
    for array in registered:
        pycoll.free(array, comm=hosts)
