"""GPU memory of other ranks with blocks of different lengths: results in every form of call, and agreement."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycoll
from pycoll.arguments.device_arrays import cupy
from tests.drawn import examples
from tests.mpi.api import test_registered_varying
from tests.mpi.api.test_registered_varying import COUNT, LENGTH, PAIRS, ROOT, VARYING
from tests.mpi.native import RANK, SIZE

from .test_sharing_device import memory, on_gpu, on_host, unshareable, warned

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]
FORMS = ("blocking", "nonblocking", "persistent")


class Call(test_registered_varying.Call):
    """A call in given GPU memory."""

    def place(self, memory):
        if isinstance(memory[0], np.ndarray):
            return super().place(memory)
        host = [np.zeros(one.size, "f4") for one in memory]
        arguments, recv, wanted = super().place(host)
        found = on_gpu(arguments, host, memory)
        memory[1][...] = cupy().asarray(host[1])  # what the call must not change
        return found, on_gpu(recv, host, memory), wanted

    @staticmethod
    def compare(recv, wanted):
        np.testing.assert_array_equal(on_host(recv), wanted)


def ordinary():
    return [np.zeros(LENGTH, "f4") for _ in range(2)]


def staged_by(call, where, form="blocking"):
    with pycoll.traffic() as sent:
        call.check(where, form, times=2)
    return sent.staged


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive", VARYING)
def test_every_form(xp, ipc, primitive, in_place, form):
    """No data is sent, and none is copied through host memory."""
    for algorithm in (name for kind, name in PAIRS if kind == primitive):
        with pycoll.traffic() as sent:
            Call(ipc, primitive, algorithm, in_place=in_place).check(memory(xp, LENGTH), form, times=2)
        assert sent.staged == 0
        assert sent.nbytes < 4 * COUNT


@examples(10)
@given(data=st.data())
def test_drawn(together, xp, ipc, data):
    """Calls of any kind and length, with buffers in host memory on some ranks, and in registered memory."""
    together(check_drawn, xp, ipc, data)


def check_drawn(xp, comm, data):
    registered = [pycoll.zeros(LENGTH, "f4", comm=comm) for _ in range(2)]
    kinds = {"host": ordinary(), "registered": registered, "GPU": memory(xp, LENGTH)}
    for number in range(data.draw(st.integers(1, 5), "calls")):
        primitive, algorithm = data.draw(st.sampled_from(PAIRS), "pair")
        drawn = st.lists(st.sampled_from(["GPU", "GPU", "registered", "host"]), min_size=SIZE, max_size=SIZE)
        call = Call(
            *(comm, primitive, algorithm, number),
            count=data.draw(st.sampled_from((1, 100, COUNT)), "count"),
            in_place=data.draw(st.booleans(), "in place"),
            starts=(data.draw(st.integers(0, 63), "send"), data.draw(st.integers(0, 63), "recv")),
        )
        where = kinds[data.draw(drawn, "memory")[RANK]]
        call.check(where, data.draw(st.sampled_from(FORMS), "form"), times=2)
    for array in registered:
        pycoll.free(array, comm=comm)


@pytest.mark.parametrize("primitive", VARYING)
def test_one_rank_changes_its_buffers(xp, ipc, primitive):
    """Other ranks open memory that they have not accessed before, because blocks to them were empty or elsewhere."""
    kinds = [memory(xp, LENGTH), memory(xp, LENGTH), ordinary()]
    calls = [Call(ipc, primitive, seed=seed) for seed in range(4)]
    for turn in range(20):
        calls[turn % 4].check(kinds[turn % 3] if RANK == turn // 5 % SIZE else kinds[0])


def test_memory_that_cannot_be_exported(xp, ipc):
    """Others access only the buffer of the root."""
    good, bad = memory(xp, LENGTH), unshareable(xp, "asynchronous", LENGTH)
    for primitive in ("gatherv", "scatterv"):
        assert staged_by(Call(ipc, primitive), good if RANK == ROOT else bad) == 0
    with warned("not from cudaMalloc") if RANK == ROOT else contextlib.nullcontext():
        assert staged_by(Call(ipc, "gatherv"), bad if RANK == ROOT else good) or RANK != ROOT


def test_short_blocks_use_messages(xp, ipc):
    for primitive in VARYING:
        call = Call(ipc, primitive, count=10)
        with pycoll.traffic() as sent:
            call.check(memory(xp, LENGTH))
        assert sent.staged or not (RANK == ROOT or not call.rooted)


def test_collectives_in_flight(xp, ipc):
    calls = [Call(ipc, primitive, seed=seed) for seed, primitive in enumerate(VARYING)]
    wheres = [memory(xp, LENGTH) for _ in calls]
    placed = [call.place(where) for call, where in zip(calls, wheres)]
    requests = [
        getattr(pycoll, f"i{call.primitive}")(*arguments, **call.given) for call, (arguments, *_) in zip(calls, placed)
    ]
    for request in reversed(requests):
        request.Wait()
    for call, (_, recv, wanted) in zip(calls, placed):
        call.compare(recv, wanted)
