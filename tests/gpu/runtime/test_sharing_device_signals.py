"""Events that ranks share, so that kernels wait for the work of other ranks: order, agreement, failures."""

import contextlib
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments.streams import own_stream
from pycoll.base import settings
from pycoll.runtime import sharing_device
from pycoll.runtime.gpu import signals
from pycoll.trace.reading import read
from pycoll.trace.summary import gpu_use
from tests.gpu import standin
from tests.gpu.api.test_collectives import is_real
from tests.gpu.standin_streams import Imported, faults
from tests.mpi.api import test_registered
from tests.mpi.native import RANK, SIZE

from .test_sharing_device import Call, memory, on_host, run_without_messages, warned

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]
COUNT, SHARED = test_registered.COUNT, test_registered.SHARED


@pytest.fixture
def simulated(xp):
    if is_real(xp):
        pytest.skip("needs the stand-in")


@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_ranks_meet_while_the_gpu_works(xp, ipc, simulated, monkeypatch, form):
    """Pending work on the buffers ends only when the ranks have met: no host waits for it before."""
    met, found = [], sharing_device.DeviceSharing._found

    def after_the_meeting(self, rows):
        met.append(True)
        return found(self, rows)

    call, where = Call(ipc, "allreduce", "ring"), memory(xp)
    expected, arguments = call.reference(), call.place(where)
    pycoll.allreduce(*arguments, **call.given)
    monkeypatch.setattr(sharing_device.DeviceSharing, "_found", after_the_meeting)
    contents = arguments[0].copy()
    where[0].fill(-5)
    xp.cuda.get_current_stream().hold(lambda: met)
    arguments[0][...] = contents
    if form == "blocking":
        result = pycoll.allreduce(*arguments, **call.given)
    else:
        result = pycoll.iallreduce(*arguments, **call.given).wait()
    np.testing.assert_array_equal(result.get(), expected)


@pytest.mark.parametrize("which", ["before", "after"])
def test_without_these_waits_results_are_wrong(xp, ipc, simulated, monkeypatch, which):
    """Check that the stand-in shows kernels that do not wait for the work of another rank, and calls that end early."""
    call, where = Call(ipc, "allreduce", "naive"), memory(xp)
    expected, arguments = call.reference(), call.place(where)
    pycoll.allreduce(*arguments, **call.given)
    contents = arguments[0].copy()
    work = sharing_device.DeviceSharing.work

    class OwnDone(signals.AllDone):
        def __init__(self, mine, others):
            super().__init__(mine, [])

    def is_right(seconds):
        """Whether the results are right on all ranks although work of rank 0 is late by this time."""

        def delay(stream):
            deadline = time.monotonic() + seconds
            stream.hold(lambda: time.monotonic() > deadline)

        def slowly(self, *arguments):
            delay(own_stream(0))
            yield from work(self, *arguments)

        where[0].fill(-5)
        if which == "before":
            if RANK == 0:
                delay(xp.cuda.get_current_stream())
            monkeypatch.setattr(signals.Signal, "after", lambda self, others: int)
        arguments[0][...] = contents
        if which == "after":
            monkeypatch.setattr(sharing_device, "AllDone", OwnDone)
            if RANK == 0:
                monkeypatch.setattr(sharing_device.DeviceSharing, "work", slowly)
        result = pycoll.allreduce(*arguments, **call.given)
        if which == "after":
            where[0].fill(-5)
        xp.cuda.get_current_stream().synchronize()
        ipc.Barrier()
        return all(ipc.allgather(np.array_equal(result.get(), expected)))

    # another rank may have to wait for a core
    assert not all(is_right(seconds) for seconds in (0.5, 3.0, 20.0))


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_if_ranks_may_fail_the_host_waits(xp, ipc, monkeypatch, form):
    monkeypatch.setattr(sharing_device, "TOLERANT", True)
    monkeypatch.setattr(signals, "take", None)  # no events are used
    for primitive in SHARED:
        call, where = Call(ipc, primitive, None), memory(xp)
        run_without_messages(call, where, form)
        call.check(where, form)


def test_without_shared_events(xp, way, access, monkeypatch):
    """With PYCOLL_CUDA_EVENTS=0, kernels access the memory of other ranks all the same."""
    monkeypatch.setattr(settings, "CUDA_EVENTS", False)
    monkeypatch.setattr(signals, "take", None)
    comm = MPI.COMM_WORLD.Dup()
    for primitive in SHARED:
        call, where = Call(comm, primitive, None), memory(xp)
        run_without_messages(call, where)
        call.check(where)
    comm.Free()


def test_events_that_cannot_be_opened(xp, ipc, simulated):
    """If one rank cannot open the events of others, all use messages, and do not try again."""
    for signal in [signals.take(0) for _ in range(len(signals._idle[0]))]:
        del signal  # new ones must be opened
    standin.ipc.refuses_events = RANK == 0
    with warned("ipcOpenEventHandle failed" if RANK == 0 else "another rank cannot open"):
        Call(ipc, "allreduce", None).check(memory(xp))
    for seed in range(3):
        Call(ipc, "bcast", None, seed).check(memory(xp))


def test_events_that_cannot_be_made(xp, ipc, simulated, monkeypatch):
    """If one rank has no events, all use messages."""
    made = xp.cuda.Event

    def failing(*, interprocess=False, **given):
        if interprocess and RANK == 0:
            raise xp.cuda.runtime.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        return made(interprocess=interprocess, **given)

    monkeypatch.setattr(signals, "_idle", defaultdict(list))
    monkeypatch.setattr(xp.cuda, "Event", failing)
    with warned("an event cannot be exported") if RANK == 0 else contextlib.nullcontext():
        Call(ipc, "allreduce", None).check(memory(xp))
    Call(ipc, "bcast", None).check(memory(xp))


def test_few_events_are_made_and_opened_once(xp, ipc, simulated):
    """As many as there are collectives in flight, for all communicators."""
    call, where, other = Call(ipc, "allreduce", None), memory(xp), MPI.COMM_WORLD.Dup()
    call.check(where)
    opened, idle = len(Imported.opened), len(signals._idle[0])
    for _ in range(5):
        call.check(where)
        Call(other, "allreduce", None).check(where)
    assert len(signals._idle[0]) == idle
    assert len(Imported.opened) <= opened + 2 * (SIZE - 1)
    other.Free()


def test_many_in_flight_use_events_again(xp, ipc):
    """Ranks complete collectives in different orders, and start others with the same events."""
    numbers = np.random.default_rng(RANK)
    for turn in range(4):
        calls = [Call(ipc, primitive, None, turn + seed) for seed, primitive in enumerate(SHARED[:4])]
        wheres = [memory(xp) for _ in calls]
        requests = [
            getattr(pycoll, f"i{call.primitive}")(*call.place(where), **call.given)
            for call, where in zip(calls, wheres)
        ]
        for i in numbers.permutation(len(calls)):
            result = on_host(requests[i].wait())
            if result is not None:
                requests[i] = result
        for call, result in zip(calls, requests):
            expected = call.reference()
            if expected is not None:
                np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_kernels_of_one_rank_fail(xp, way, access, simulated, monkeypatch, form):
    """It raises the error of the GPU; the others wait for its kernels until their timeout."""
    monkeypatch.setattr(settings, "TIMEOUT", 1.0)
    comm = MPI.COMM_WORLD.Dup()  # not freed, because messages may be pending
    pycoll.attach(comm)
    send, recv = xp.zeros(COUNT, "f4"), xp.zeros(COUNT, "f4")
    pycoll.allreduce(send, recv, comm=comm)
    xp.cuda.get_current_stream().synchronize()
    if RANK == 0:
        faults.run = 0
    try:
        with pytest.raises((pycoll.CollectiveTimeout, RuntimeError)) as caught:
            if form == "blocking":
                pycoll.allreduce(send, recv, comm=comm)
            else:
                pycoll.iallreduce(send, recv, comm=comm).wait()
    finally:
        faults.clear()
    expected = "work on the GPU failed" if RANK == 0 else "it waits for the GPU"
    assert expected in str(caught.value)
    MPI.COMM_WORLD.Barrier()


def test_traces(xp, ipc, tmp_path):
    """They contain the launches and the waits for the GPU of every rank."""
    directory = ipc.bcast(str(tmp_path))
    with pycoll.trace(directory):
        for form in ("blocking", "nonblocking", "persistent"):
            Call(ipc, "allreduce", "ring").run(memory(xp), form)
    ipc.Barrier()
    use = gpu_use(read(Path(directory)).ranks[RANK])
    assert use.launches >= 4 * (SIZE - 1) and use.waiting > 0
